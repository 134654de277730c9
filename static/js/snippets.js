// A chat request as code to be copied: one text for each language of the playground.
"use strict";

window.HelixSnippets = (() => {
  const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  // What JSON writes as true, false and null Python calls by other names.
  const python = (value) => {
    if (value === true) return "True";
    if (value === false) return "False";
    if (value === null) return "None";
    if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
    if (typeof value === "object") {
      return `{${Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${python(item)}`).join(", ")}}`;
    }
    return JSON.stringify(value);
  };
  const curl = (url, body) => [
    `curl -N ${shell(`${url}/chat/completions`)} \\`,
    '  -H "Authorization: Bearer YOUR_KEY" \\',
    '  -H "Content-Type: application/json" \\',
    `  -d ${shell(JSON.stringify(body))}`,
  ].join("\n");
  const inPython = (url, body) => [
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(url)}, api_key="YOUR_KEY")`,
    "answer = client.chat.completions.create(",
    ...Object.entries(body).map(([name, value]) => `    ${name}=${python(value)},`),
    ")",
    "for chunk in answer:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="")',
  ].join("\n");
  const inJavaScript = (url, body) => [
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: ${JSON.stringify(url)}, apiKey: "YOUR_KEY" });`,
    `const answer = await client.chat.completions.create(${JSON.stringify(body, null, 2)});`,
    "for await (const chunk of answer) {",
    '  process.stdout.write(chunk.choices[0]?.delta.content ?? "");',
    "}",
  ].join("\n");
  const writers = { curl, python: inPython, javascript: inJavaScript };
  return { write: (language, url, body) => writers[language](url, body) };
})();
