() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const card = at.matches?.('g.node') ? at.querySelector('.card') : null;
      const colour = rgb(card ? getComputedStyle(card).fill : getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = new Set();
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.getClientRects().length || one.matches(':disabled, title, desc')) continue;
    const style = getComputedStyle(one);
    const text = rgb(one.ownerSVGElement ? style.fill : style.color), under = ground(one);
    const [high, low] = [light(text.slice(0, 3)), light(under.slice(0, 3))].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) found.add(`${contrast.toFixed(2)} ${one.className?.baseVal ?? one.className} ${one.textContent.slice(0, 40)}`);
  }
  return [...found];
}
