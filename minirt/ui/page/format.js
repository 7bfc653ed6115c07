// Numbers as people read them. Everything takes null for what is not known.

export function count(number) {
  if (number == null) return "–";
  for (const factor of ["", "k", "M", "G"]) {
    if (number < 999.5 || factor === "G") return `${Number(number.toPrecision(3))}${factor}`;
    number /= 1000;
  }
}

export function rate(number) {
  return number == null ? "–" : `${count(number)}/s`;
}

export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0.00995) return `${Number((seconds * 1000).toFixed(1))} ms`;
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(0)} ms`;
  return seconds < 120 ? `${seconds.toFixed(2)} s` : span(seconds);
}

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return `${hours}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

export function bytes(number) {
  if (number == null) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (number < 999.5 || unit === "GB") return `${Number(number.toPrecision(3))} ${unit}`;
    number /= 1000;
  }
}

export function percent(share) {
  return share == null ? "–" : `${Math.round(share * 100)} %`;
}

export function time(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function dateTime(at) {
  return `${new Date(at * 1000).toLocaleDateString("sv-SE")} ${time(at)}`;
}

export function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2); // Chains often begin alike: the middle gives way.
  return `${text.slice(0, most - 1 - end)}…${text.slice(-end)}`;
}
