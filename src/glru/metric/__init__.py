"""Inner products in the inverse of a Hessian: by columns, by rows, on a device."""
