// Answers queries by the search of a built site: node search.js SITE QUERY...
// It runs the theme's own worker over the site's own index, and prints a JSON list: for each query
// the best section of each page, the pages in the order in which the site shows them.
"use strict";

const fs = require("fs");
const path = require("path");

const [site, ...queries] = process.argv.slice(2);
const folder = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name));
const answers = [];
let listen;

globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => (listen = listener);
globalThis.postMessage = ({ type, data }) => {
  if (type === 3) answers.push(data.items.map((sections) => sections[0].location));
  if (answers.length === queries.length) console.log(JSON.stringify(answers));
  else listen({ data: { type: 2, data: queries[answers.length] } });
};
(0, eval)(fs.readFileSync(path.join(folder, worker), "utf8"));
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
listen({ data: { type: 0, data: { config: index.config, docs: index.docs, options: {} } } });
