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

// A number as ",.2f" or "+.1f" says; what is no number as it is.
function written(value, format) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number" || !format) return value;
  const digits = Number(/\.(\d+)f/.exec(format)[1]);
  const sign = format.startsWith("+") && Number(value.toFixed(digits)) !== 0 ? "exceptZero" : "auto";
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits,
    useGrouping: format.includes(","), signDisplay: sign === "auto" ? "negative" : sign });
}

// Something that may be wider than the page: it scrolls, and says so where it does.
function scrollable(content, name) {
  const box = element("div", undefined, "wide"), scroll = element("div", undefined, "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", name);
  scroll.append(content);
  box.append(element("p", "scroll sideways for more →", "hint"), scroll);
  const look = () => {
    const left = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft;
    box.classList.toggle("more", left > 2);
  };
  scroll.addEventListener("scroll", look);
  // In the next frame: what an observer changes at once would be observed again.
  const sizes = new ResizeObserver(() => requestAnimationFrame(look));
  sizes.observe(scroll);
  sizes.observe(content);
  return box;
}

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

// One small bar per chance, from 0 at the bottom to 1 at the top, with a line at the half.
function spark(chances) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  const draw = (tag, shape, text) => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(shape)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    picture.append(made);
  };
  const wide = 16 * chances.length, high = 24, scale = { x: 9, fill: "var(--dim)", "font-size": 9, "text-anchor": "end" };
  picture.setAttribute("width", wide + 16);
  picture.setAttribute("height", high + 8);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", chances.map((chance) => chance.toFixed(2)).join(", "));
  draw("text", { ...scale, y: 8 }, "1");
  draw("text", { ...scale, y: high + 6 }, "0");
  draw("rect", { x: 12, y: 3, width: wide, height: high, fill: "var(--panel)" });
  chances.forEach((chance, place) => {
    const height = Math.max(1, high * chance);
    draw("rect", { x: 16 * place + 14, y: 3 + high - height, width: 12, height, fill: "var(--mark)" });
  });
  draw("path", { d: `M12 ${3 + high / 2}h${wide}`, stroke: "var(--dim)", "stroke-dasharray": "2 2", opacity: 0.7 });
  return picture;
}
