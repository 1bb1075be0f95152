"use strict";
(function () {
  const tip = document.getElementById("tip");
  const reach = 30;

  function explore(svg) {
    const marks = Array.from(svg.querySelectorAll(".mark"), (node) => {
      const title = node.querySelector("title");
      const text = title.textContent;
      title.remove();
      return { node, text, x: Number(node.getAttribute("x")), y: Number(node.getAttribute("y")) };
    });
    let near = null;

    function leave() {
      if (near) near.node.classList.remove("near");
      near = null;
      tip.hidden = true;
    }

    function seek(event) {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let best = null;
      let least = reach;
      for (const mark of marks) {
        const distance = Math.hypot(mark.x - point.x, mark.y - point.y);
        if (distance < least) [best, least] = [mark, distance];
      }
      if (best !== near) {
        leave();
        near = best;
        if (near) {
          near.node.classList.add("near");
          near.node.parentNode.appendChild(near.node);
          tip.textContent = near.text;
          tip.hidden = false;
        }
      }
      if (near) {
        const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
        const below = event.clientY + 18;
        const above = event.clientY - tip.offsetHeight - 12;
        tip.style.left = Math.max(8, left) + "px";
        tip.style.top = (below + tip.offsetHeight < window.innerHeight ? below : above) + "px";
      }
    }

    svg.addEventListener("pointermove", seek);
    svg.addEventListener("pointerdown", seek);
    svg.addEventListener("pointerleave", leave);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = Array.from(table.tHead.rows[0].cells);

    function key(row, place) {
      const cell = row.cells[place];
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    }

    heads.forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
        const rows = Array.from(body.rows).sort((a, b) => sign * compare(key(a, place), key(b, place)));
        body.append(...rows);
      });
    });
  }

  document.querySelectorAll("svg").forEach(explore);
  document.querySelectorAll("table.sortable").forEach(sortable);
})();
