() => {
  const parts = [...document.querySelectorAll(
    'header h1, .facts, .actions button, .verdict p, h2, .panel > p, .buttons button, figure, .gantt tr, .ranking tr, '
    + '.strip, details > summary, .legend li')].filter((one) => one.getClientRects().length);
  const found = [];
  const boxes = parts.map((one) => one.getBoundingClientRect());
  parts.forEach((one, i) => parts.forEach((other, j) => {
    if (i >= j || one.contains(other) || other.contains(one)) return;
    const a = boxes[i], b = boxes[j];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1) found.push(`${one.outerHTML.slice(0, 90)} ON ${other.outerHTML.slice(0, 90)}`);
  }));
  const nodes = [...document.querySelectorAll('.node .card')].map((one) => one.getBoundingClientRect());
  nodes.forEach((a, i) => nodes.forEach((b, j) => {
    if (i < j && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push('nodes');
  }));
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
  return found;
}
