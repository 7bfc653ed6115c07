// The search takes each word for the beginning of words, also "i" and "a": half of all titles begin so.
// So words that every question has are left out of what it is asked.
const LEFT_OUT = new Set(
  ("a about am an and are be by can do does for from get how i if in is it me must my of on or should the there this to " +
    "use we what when where which who why will with you your").split(" "),
)
const QUERY = 2 // The type of message by which the page asks its search worker.

const posted = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...more) {
  if (message?.type === QUERY && typeof message.data === "string") {
    const words = message.data.split(/\s+/)
    const kept = words.filter((word) => !LEFT_OUT.has(word.replace(/[+*?]/g, "").toLowerCase()))
    if (kept.length) message = { ...message, data: kept.join(" ") }
  }
  return posted.call(this, message, ...more)
}
