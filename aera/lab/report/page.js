// The report: sections with figures and tables, and the question explorer.
const report = JSON.parse(byId("report").textContent);
const state = { policy: report.headline.policy, question: 0 };
const followers = []; // called whenever another policy is chosen
const decimals = (share) => (share === null || share === undefined ? "–" : share.toFixed(2));

function labelled(made, text) {
  made.setAttribute("aria-label", text);
  return made;
}

function choice(names, chosen) {
  const list = element("select");
  for (const name of names) list.append(new Option(name, name, false, name === chosen));
  return list;
}

// --- figures --------------------------------------------------------------------------------

function tip(handler, event, item, value) {
  const box = byId("tip");
  box.hidden = !value || typeof value !== "object";
  if (box.hidden) return;
  const table = element("table");
  for (const [name, content] of Object.entries(value)) {
    const row = element("tr");
    row.append(element("td", name), element("td", content));
    table.append(row);
  }
  box.replaceChildren(table);
  const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
  const above = event.clientY + 14 + box.offsetHeight > innerHeight;
  box.style.left = Math.max(8, left) + "px";
  box.style.top = (above ? event.clientY - box.offsetHeight - 10 : event.clientY + 14) + "px";
}

async function draw(figure, place) {
  const narrow = place.clientWidth < 560;
  const legend = { ...report.config.legend, columns: narrow ? 2 : 0, direction: "horizontal" };
  const spec = { ...figure.spec, config: { ...report.config, legend } };
  const settings = { renderer: "svg", actions: false, defaultStyle: false, tooltip: tip };
  const { view } = await vegaEmbed(place, spec, settings);
  if ((figure.spec.params || []).some((param) => param.name === "policy")) {
    const follow = () => view.signal("policy", state.policy).runAsync();
    followers.push(follow);
    await follow();
  }
}

// In a file of its own a figure has a title, a width, and white paper.
async function save(figure) {
  const followed = (figure.spec.params || []).length > 0;
  const { width, title } = figure.alone;
  const text = followed ? `${figure.title}: ${state.policy}` : title.text;
  const spec = { ...figure.spec, width, title: { ...title, text }, config: report.alone };
  const { view } = await vegaEmbed(element("div"), spec, { renderer: "svg", actions: false });
  if (followed) await view.signal("policy", state.policy).runAsync();
  const drawn = await view.toSVG();
  view.finalize();
  const inked = drawn.replace(/var\((--[a-z]+)\)/g, (_, colour) => report.palette[colour]);
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([inked], { type: "image/svg+xml" }));
  link.download = `${figure.name}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function sheet(caption, headings, rows) {
  const table = element("table"), head = element("thead"), body = element("tbody");
  if (caption) table.append(element("caption", caption));
  const numeric = headings.map((_, i) => i > 0 && rows.every((row) => /^[-+–\d[]/.test(String(row[i]))));
  const top = element("tr");
  headings.forEach((heading, i) => top.append(element("th", heading, numeric[i] ? "number" : "")));
  head.append(top);
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, i) => line.append(element("td", cell ?? "–", numeric[i] ? "number" : "")));
    body.append(line);
  }
  table.append(head, body);
  return scrollable(table, caption || "table");
}

// Rows by their fields, under the headings and in the formats that go with these.
function fields(caption, { columns, formats }, rows) {
  return sheet(caption, Object.values(columns),
    rows.map((row) => Object.keys(columns).map((key) => written(row[key], formats[key]))));
}

function numbers(figure) {
  const details = element("details");
  details.append(element("summary", "Numbers"));
  const fill = () => {
    const followed = (figure.spec.params || []).length > 0;
    const rows = figure.spec.data.values.filter((row) => !followed || row.policy === state.policy);
    details.replaceChildren(details.firstChild,
      fields("", figure, rows));
  };
  details.addEventListener("toggle", () => details.open && fill());
  followers.push(() => details.open && fill());
  return details;
}

function picture(figure) {
  const made = element("figure"), top = element("div", undefined, "top");
  made.id = `figure-${figure.name}`;
  const button = labelled(element("button", "SVG"), `Save ${figure.title} as SVG`);
  button.addEventListener("click", () => save(figure));
  top.append(element("h3", figure.title), button);
  const chart = element("div", undefined, "chart");
  made.append(top, element("figcaption", figure.caption), chart, numbers(figure));
  return { made, start: () => draw(figure, chart) };
}

// Figures that take turns: radio buttons choose which one is there.
function turns(figures) {
  const box = element("div"), place = element("div"), field = element("fieldset");
  field.append(element("legend", "Compute counted in"));
  const show = (figure) => {
    const { made, start } = picture(figure);
    place.replaceChildren(made);
    return start();
  };
  figures.forEach((figure, i) => {
    const label = element("label"), radio = element("input");
    Object.assign(radio, { type: "radio", name: "spend", value: figure.tab, checked: i === 0 });
    radio.addEventListener("change", () => show(figure));
    label.append(radio, " ", figure.tab);
    field.append(label);
  });
  box.append(field, place);
  return { made: box, start: () => show(figures[0]) };
}

function section(content, starts) {
  const made = element("section"), inside = content.folded ? element("details") : made;
  made.id = content.name;
  const title = element("h2", content.title);
  if (content.folded) {
    const head = element("summary");
    head.append(title);
    inside.append(head);
    made.append(inside);
  } else made.append(title);
  if (content.lead) inside.append(element("p", content.lead));
  const tabs = content.figures.filter((figure) => figure.tab);
  const single = content.figures.filter((figure) => !figure.tab).map(picture);
  const first = tabs.length > 1 ? [turns(tabs)] : tabs.map(picture);
  const pair = element("div", undefined, single.length > 1 ? "pair" : "");
  pair.append(...single.map((one) => one.made));
  inside.append(...first.map((one) => one.made), pair);
  for (const one of content.sheets) {
    const box = element("div", undefined, "sheet");
    box.append(fields(one.caption, one, one.rows));
    inside.append(box);
  }
  const drawn = [...first, ...single].map((one) => one.start);
  // A figure takes the width of its place, which has none before it is unfolded.
  if (!content.folded) starts.push(...drawn);
  else inside.addEventListener("toggle", () => drawn.splice(0).forEach((start) => start()), { once: true });
  return made;
}

// --- the explorer ---------------------------------------------------------------------------

const point = () => report.points.find((one) => one.policy === state.policy);
const graded = report.questions.length > 0 && "right" in report.questions[0];
const last = report.schedule.length - 1;
const falls = (right, from, to) => right.some((now, i) => i > 0 && right[i - 1] === from && now === to);
const FILTERS = {
  "all questions": () => true,
  "lost by this policy": (q, stop) => graded && !q.right[stop] && q.right[last],
  "gained by this policy": (q, stop) => graded && q.right[stop] && !q.right[last],
  "with a recovery": (q) => graded && falls(q.right, 0, 1),
  "with a collapse": (q) => graded && falls(q.right, 1, 0),
  "stopped at the first checkpoint": (q, stop) => stop === 0,
  "full budget spent": (q, stop) => stop === last,
};
const COLOURS = ["--blue", "--orange", "--green", "--purple", "--sky", "--red", "--gold"];

function mark(question, column) {
  if (!graded) return "";
  return question.right[column] ? " ✓ right" : " ✗ wrong";
}

// What stands behind an answer: weight where votes carry weights, else a number of votes.
const behind = (amount) => (report.weighted ? `weight ${amount.toFixed(2)}` : `${amount} ${amount === 1 ? "vote" : "votes"}`);
const silence = (count) => `${count} ${count === 1 ? "response" : "responses"}`;

function votes(question, i) {
  const bar = element("div", undefined, "votes");
  const parts = question.answers.map((answer, a) => [answer, question.weights[a][i], a]);
  parts.push(["other answers", question.others[i], "others"], ["no answer", question.silent[i], "silent"]);
  for (const [, count, kind] of parts) {
    if (!count) continue;
    const part = element("span", undefined, typeof kind === "string" ? kind : "");
    part.style.flexGrow = count;
    if (typeof kind === "number") part.style.background = `var(${COLOURS[kind % COLOURS.length]})`;
    bar.append(part);
  }
  bar.setAttribute("role", "img");
  const told = parts.filter(([, count]) => count)
    .map(([name, count, kind]) => `${name}: ${kind === "silent" ? silence(count) : behind(count)}`).join(", ");
  bar.title = told;
  return labelled(bar, told);
}

function key(question) {
  const box = element("div", undefined, "keys");
  const entry = (text, kind, colour) => {
    const one = element("span"), patch = element("i", undefined, kind);
    if (colour) patch.style.background = `var(${colour})`;
    one.append(patch, text);
    return one;
  };
  question.answers.forEach((answer, a) => {
    const mark = answer === question.truth ? " (right)" : "";
    box.append(entry(`${answer}${mark}: ${behind(question.weights[a].at(-1))}`, "", COLOURS[a % COLOURS.length]));
  });
  if (question.others.at(-1)) box.append(entry(`other answers: ${behind(question.others.at(-1))}`, "others"));
  if (question.silent.at(-1)) box.append(entry(`no answer: ${silence(question.silent.at(-1))}`, "silent"));
  return box;
}

function chance(value, threshold) {
  const cell = element("td");
  if (value === null || value === undefined) { cell.textContent = "–"; return cell; }
  const track = element("span", undefined, "chance"), fill = element("i");
  fill.style.width = 100 * value + "%";
  track.append(fill);
  if (threshold !== undefined && threshold !== null) {
    const mark = element("b");
    mark.style.left = `calc(${100 * threshold}% - 1px)`;
    track.append(mark);
    track.title = `threshold ${threshold}`;
  }
  cell.append(track, value.toFixed(3));
  return cell;
}

function checkpoints(question, stop, threshold) {
  const names = Object.keys(question.evidence), asked = "p_continue" in question;
  const table = element("table"), head = element("tr"), body = element("tbody");
  const headings = ["responses", report.weighted ? "weights" : "votes", "answer", ...(asked ? ["p_continue"] : []), "decision",
    ...names.map((name) => name.replaceAll("_", " "))];
  headings.forEach((heading) => head.append(element("th", heading)));
  report.columns.forEach((column, i) => {
    const kind = column === stop ? "stop" : column > stop ? "unpaid" : "";
    const row = element("tr", undefined, kind), bar = element("td");
    bar.append(votes(question, i));
    row.append(element("td", report.schedule[column]), bar,
      element("td", (question.returned[i] ?? "none") + mark(question, column)),
      ...(asked ? [chance(question.p_continue[i], threshold)] : []),
      element("td", column === stop ? "stop" : column < stop ? "continue" : "not paid for"),
      ...names.map((name) => element("td", decimals(question.evidence[name][i]))));
    body.append(row);
  });
  const top = element("thead");
  top.append(head);
  table.append(element("caption", "Checkpoint by checkpoint"), top, body);
  return scrollable(table, "Checkpoints of this question");
}

// The responses themselves: text goes in as text, whatever it holds.
function responses(question, stop) {
  const made = element("details", undefined, "responses"), all = report.schedule[last];
  const shown = question.responses, paid = report.schedule[stop];
  made.append(element("summary", `Responses (${shown.length} of ${all})`));
  if (shown.length < all) {
    made.append(element("p", `Shown are the first one, one for each of the most frequent answers, one that could not be read, and the next ones; ${all - shown.length} others are left out, and the middle of long ones.`));
  }
  for (const one of shown) {
    const box = element("details"), head = element("summary");
    const right = graded && one.answer !== null ? (one.answer === question.truth ? " ✓" : "") : "";
    head.append(`Response ${one.number}: `, element("strong", one.answer === null ? one.why : one.answer + right));
    const facts = [report.weighted && one.answer !== null && `weight ${one.weight.toFixed(3)}`,
      one.tokens && `${whole.format(one.tokens)} tokens`, one.number > paid && `not paid for by ${state.policy}`];
    head.append(element("span", ` ${facts.filter(Boolean).join(", ")}`));
    box.append(head, element("div", one.text || "No text was recorded.", one.text ? "text" : "text none"));
    made.append(box);
  }
  return made;
}

function describe(place) {
  const opened = place.querySelector(".responses")?.open ?? false;
  const question = report.questions[state.question], shown = point();
  const stop = shown.stops[state.question];
  const threshold = shown.thresholds ? shown.thresholds[state.question] : undefined;
  const spent = report.columns.indexOf(stop);
  const returned = spent < 0 ? "" : ` with ${question.returned[spent] ?? "no answer"}${mark(question, stop)}`;
  const why = element("p", undefined, "why");
  why.append(element("strong", `${shown.policy} stops after ${report.schedule[stop]} responses`),
    `${returned}: ${shown.reasons[shown.why[state.question]]}.`);
  if (graded) why.append(` Full budget: ${question.returned.at(-1) ?? "no answer"}${mark(question, last)}.`);
  const byStop = report.schedule.map((checkpoint, column) =>
    [checkpoint, report.points.filter((one) => one.stops[state.question] === column).map((one) => one.policy)]);
  const others = element("details");
  others.append(element("summary", "Where every policy stops here"),
    sheet("", ["responses", "policies"], byStop.filter(([, who]) => who.length).map(([n, who]) => [n, who.join(", ")])));
  others.querySelectorAll("td").forEach((cell) => { cell.style.whiteSpace = "normal"; });
  place.replaceChildren(element("h3", question.id), element("p", question.text, "question"), why);
  if (graded) place.append(element("p", `Right answer: ${question.truth}`));
  const texts = responses(question, stop);
  texts.open = opened;
  if (report.weighted) place.append(element("p", `Weights are those of ${report.headline.policy}; a policy on plain votes counts every vote as one.`, "small"));
  place.append(key(question), checkpoints(question, stop, threshold), texts, others);
}

function explorer() {
  const made = element("section"), grid = element("div", undefined, "explorer");
  made.id = "explorer";
  made.append(element("h2", "Question explorer"),
    element("p", "Choose a question with the mouse or the arrow keys; letters typed in the search narrow the list."));
  if (report.questions.length < report.judged) {
    made.append(element("p", `These are ${whole.format(report.questions.length)} of the ${whole.format(report.judged)} questions, drawn by chance; everything else on this page is of all of them.`));
  }
  const filter = labelled(choice(Object.keys(FILTERS).filter((name) => graded || !/gained|lost|with a/.test(name)), "all questions"), "Which questions");
  const search = labelled(element("input"), "Search questions");
  Object.assign(search, { type: "search", placeholder: "Search" });
  const list = labelled(element("select"), "Question");
  list.size = 12;
  list.id = "questions";
  const count = element("p"), detail = element("div");
  count.setAttribute("role", "status");
  detail.id = "question";
  detail.setAttribute("aria-live", "polite");
  const fill = () => {
    const wanted = search.value.toLowerCase(), stops = point().stops;
    const rows = report.questions.map((question, i) => [question, i]).filter(([question, i]) =>
      FILTERS[filter.value](question, stops[i]) && `${question.id} ${question.text}`.toLowerCase().includes(wanted));
    list.replaceChildren(...rows.map(([question, i]) => new Option(`${question.id}  ${question.text.slice(0, 60)}`, i)));
    count.textContent = `${rows.length} of ${report.questions.length} questions`;
    if (rows.length && !rows.some(([, i]) => i === state.question)) state.question = rows[0][1];
    list.value = state.question;
    describe(detail);
  };
  filter.addEventListener("change", fill);
  search.addEventListener("input", fill);
  list.addEventListener("change", () => { state.question = Number(list.value); describe(detail); });
  followers.push(fill);
  const choose = element("div", undefined, "choose");
  choose.append(filter, search, list, count);
  grid.append(choose, detail);
  made.append(grid);
  fill();
  return made;
}

// --- the page -------------------------------------------------------------------------------

function head() {
  const made = element("header"), { pool, headline } = report;
  const what = `${pool.name}: ${whole.format(pool.questions)} questions, checkpoints ${pool.schedule.slice(0, 8).join(", ")}${pool.schedule.length > 8 ? " …" : ""}, ${report.protocol} (${headline.status})`;
  const certificate = element("p", headline.certificate, `certificate${headline.certified ? " certified" : ""}`);
  const totals = element("dl");
  totals.append(...boxes(report.boxes));
  made.append(element("p", what, "over"), element("h1", `${headline.claim}.`.replace(/([a-z])-(\d)/g, "$1\u2011$2").replace(/(\d|%:) (?=%|[-+]\d)/g, "$1\u00a0")), certificate,
    ...headline.lines.slice(1, -1).map((line) => element("p", line, "grounds")), readability(), totals);
  return made;
}

function readability() {
  const { summary, warning, examples } = report.readability;
  if (!examples.length) return element("p", `${summary}.`, "grounds");
  const made = element("details", undefined, warning ? "unread" : "grounds"), list = element("ul");
  made.open = Boolean(warning);
  list.append(...examples.map((one) => element("li", one)));
  made.append(element("summary", `${warning || summary}.`), list);
  return made;
}

function toolbar() {
  const made = element("div", undefined, "bar-top"), label = element("label", "Policy shown ");
  const list = choice(report.points.map((one) => one.policy), state.policy);
  list.id = "policy";
  list.addEventListener("change", () => {
    state.policy = list.value;
    followers.forEach((follow) => follow());
  });
  label.append(list);
  made.append(label, element("p", "for stops, difficulty and the explorer"));
  return made;
}

function contents(names) {
  const made = labelled(element("nav"), "Sections");
  for (const [name, title] of names) {
    const link = element("a", title);
    link.href = `#${name}`;
    link.addEventListener("click", () => byId(name).querySelectorAll(":scope > details").forEach((one) => { one.open = true; }));
    made.append(link);
  }
  return made;
}

async function build() {
  const starts = [], page = byId("page");
  const sections = report.sections.map((content) => section(content, starts));
  const names = report.sections.map(({ name, title }) => [name, title]);
  const place = report.sections.findIndex(({ name }) => name === "stops") + 1;
  names.splice(place, 0, ["explorer", "Question explorer"]);
  sections.splice(place, 0, explorer());
  const prices = report.prices ? ` Prices: ${Object.entries(report.prices).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ")}.` : "";
  const foot = element("footer", `AERA ${report.version}, protocol ${report.protocol}, seed ${report.seed}, task ${report.pool.task}.${prices} This file needs no network.`);
  page.append(head(), contents(names), toolbar(), ...sections, foot);
  for (const start of starts) await start();
  document.body.dataset.ready = "yes";
}
build();
