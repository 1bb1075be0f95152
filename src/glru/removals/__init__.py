"""Leave-one-out of every kind of problem: one class each, with the table of its steps.

=====================  =====================================================================
rows in memory         :class:`~glru.removals.single.SingleRemovals`
refitted preprocessing :class:`~glru.removals.refitted.RefittedRemovals`
rows in blocks         :class:`~glru.removals.blocks.BlockRemovals`
one score per class    :class:`~glru.removals.classes.ClassRemovals`
classes in blocks      :class:`~glru.removals.classes.ClassBlockRemovals`
=====================  =====================================================================
"""
