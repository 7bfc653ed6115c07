() => {
  const found = [];
  const inset = 1.5;
  for (const svg of document.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')].filter((one) => one.textContent.trim() && one.getClientRects().length
      && getComputedStyle(one).visibility !== 'hidden' && +getComputedStyle(one).opacity > 0.1);
    const boxes = texts.map((one) => one.getBoundingClientRect());
    const frame = svg.getBoundingClientRect();
    texts.forEach((one, i) => {
      const a = boxes[i];
      if (a.left < frame.left - inset || a.right > frame.right + inset || a.top < frame.top - inset || a.bottom > frame.bottom + inset)
        found.push(`${one.textContent} IS CUT OFF`);
      for (let j = i + 1; j < texts.length; j++) {
        const b = boxes[j];
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > inset
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > inset)
          found.push(`${one.textContent} ON ${texts[j].textContent}`);
      }
    });
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
  return found;
}
