// What the gateway's page and the evaluation report draw with: elements, tables, bars.
"use strict";
const whole = new Intl.NumberFormat("en");
const byId = (id) => document.getElementById(id);
const element = (tag, text, kind) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};

// Boxes with a name and a value each.
function boxes(shown) {
  return Object.entries(shown).map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", value));
    return box;
  });
}

// Rows of name, bar and count, as long as the largest count allows.
function bars(counts) {
  const most = Math.max(1, ...counts.map(([, count]) => count));
  return counts.flatMap(([name, count]) => {
    const bar = element("div", undefined, "bar");
    bar.style.width = 100 * count / most + "%";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", `${name}: ${count}`);
    return [element("span", name), bar, element("span", count)];
  });
}

// One small bar per chance.
function spark(chances) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("width", 16 * chances.length + 4);
  picture.setAttribute("height", 22);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", chances.map((chance) => chance.toFixed(2)).join(", "));
  chances.forEach((chance, place) => {
    const rect = document.createElementNS(space, "rect");
    const height = Math.max(1, 20 * chance);
    const shape = { x: 16 * place + 2, y: 21 - height, width: 12, height, fill: "var(--mark)" };
    for (const [name, value] of Object.entries(shape)) rect.setAttribute(name, value);
    picture.append(rect);
  });
  return picture;
}
