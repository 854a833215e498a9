// Building and changing the page. Text only ever enters as text: event fields are hostile.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; a child that is no node becomes text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same, for drawings. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// The two below touch the page only when something changed: a screen reader announces every write to a live
// region, and a selection the operator is about to copy ends with a write.

/** Shows `text` in `node`. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute, or takes it away when `value` is null. */
export function mark(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Shows or hides columns of a table, by their names. */
export function columns(section, shown) {
  for (const [name, isShown] of Object.entries(shown)) {
    for (const cell of section.querySelectorAll("th, td")) {
      if ((cell.dataset.column ?? cell.textContent) === name) cell.hidden = !isShown;
    }
  }
}

/**
 * Makes `parent` hold one child per item, in order. A child stays the same node as long as its item's key does,
 * so that focus, selection and opened details survive a refresh.
 */
export function list(parent, items, key, create, update) {
  const had = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const seen = new Map();
  items.forEach((item, index) => {
    const name = String(key(item));
    const nth = seen.get(name) ?? 0;
    seen.set(name, nth + 1);
    const unique = `${nth}:${name}`;
    let child = had.get(unique);
    if (child) had.delete(unique);
    else {
      child = create(item);
      child.dataset.key = unique;
    }
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    update(child, item);
  });
  for (const child of had.values()) child.remove();
}
