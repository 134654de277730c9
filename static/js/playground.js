// The playground: posts the chat to this site, which carries it to the coordinator, and shows the answer
// as its tokens come, with what the coordinator says of it at the end.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const form = byId("chat");
  const messages = byId("messages");
  const prompt = byId("prompt");
  const status = byId("chat-status");
  const fields = [byId("deployment"), byId("system"), byId("temperature"), byId("max-tokens"), prompt];
  let history = []; // what was said so far, as OpenAI messages
  let running = null; // the AbortController of the answer under way

  const chosen = () => byId("deployment").selectedOptions[0];
  // An empty field is left out, so the server's default holds.
  const request = (said) => {
    const body = { messages: said };
    const system = byId("system").value.trim();
    if (system) body.messages = [{ role: "system", content: system }, ...said];
    const temperature = byId("temperature").value;
    const maxTokens = byId("max-tokens").value;
    if (temperature !== "") body.temperature = Number(temperature);
    if (maxTokens !== "") body.max_tokens = Number(maxTokens);
    return body;
  };
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const showCurl = () => {
    const next = [...history, { role: "user", content: prompt.value.trim() || "Hello" }];
    const body = { model: chosen().dataset.model, ...request(next), stream: true };
    byId("curl").textContent = [
      `curl -N ${quoted(`${chosen().dataset.url}/chat/completions`)} \\`,
      '  -H "Authorization: Bearer YOUR_KEY" \\',
      '  -H "Content-Type: application/json" \\',
      `  -d ${quoted(JSON.stringify(body))}`,
    ].join("\n");
  };

  const add = (who, text, kind) => {
    byId("no-messages")?.remove();
    const message = byId("answer-template").content.firstElementChild.cloneNode(true);
    message.classList.add(kind);
    message.querySelector(".who").textContent = who;
    message.querySelector(".said").textContent = text;
    messages.append(message);
    messages.scrollTop = messages.scrollHeight;
    return message;
  };
  const chip = (text, kind) => {
    const span = document.createElement("span");
    span.className = `badge plain ${kind}`;
    span.textContent = text;
    return span;
  };
  const number = (value, digits) => Number(value.toPrecision(digits)).toLocaleString("en");
  const seconds = (value) => (value < 1 ? `${number(value * 1000, 3)} ms` : `${number(value, 3)} s`);
  // helix.ttft_s is measured at the coordinator; tokens/s here, between the first and the last token.
  const facts = (answer) => {
    const parts = [];
    const ttft = answer.helix?.ttft_s ?? answer.firstAfter;
    if (ttft !== null) parts.push(`TTFT ${seconds(ttft)}`);
    const tokens = answer.usage?.completion_tokens;
    if (tokens !== undefined) parts.push(`${tokens} tokens`);
    const took = answer.lastAt - answer.firstAt;
    if (tokens > 1 && took > 0) parts.push(`${number((tokens - 1) / (took / 1000), 3)} tokens/s after the first`);
    if (answer.finish === "length") parts.push("ended at the longest answer allowed");
    if (answer.stopped) parts.push("stopped");
    return parts;
  };
  const showFacts = (message, answer) => {
    const footer = message.querySelector("footer");
    const path = answer.helix?.pipeline ?? [];
    const nodes = path.flatMap((hop, index) => [
      ...(index ? ["→"] : []), chip(`${hop.node} [${hop.first}, ${hop.end})`, "live"),
    ]);
    footer.replaceChildren(...facts(answer).map((text) => chip(text, "")), ...nodes);
    footer.hidden = !footer.childNodes.length;
  };

  class Refused extends Error {}
  const refusal = async (response) => {
    if (response.redirected) return new Refused("You are logged out. Log in again in another tab, then send once more.");
    const text = await response.text();
    let message = null;
    try { message = JSON.parse(text).error.message; } catch { /* not an error object: the status says it all */ }
    if (message === null) message = `The site answered ${response.status} ${response.statusText}; reload the page and try again.`;
    const wait = response.headers.get("Retry-After");
    return new Refused(wait ? `${message} Try again in ${wait} s.` : message);
  };
  // Yields the JSON of every `data:` line of a stream of server-sent events, until [DONE].
  async function* chunks(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  }
  const follow = async (response, message, answer, sentAt) => {
    const said = message.querySelector(".said");
    for await (const chunk of chunks(response)) {
      if (chunk.error) throw new Refused(chunk.error.message);
      answer.usage = chunk.usage ?? answer.usage;
      answer.helix = chunk.helix ?? answer.helix;
      const choice = chunk.choices?.[0];
      answer.finish = choice?.finish_reason ?? answer.finish;
      const text = choice?.delta?.content;
      if (!text) continue;
      answer.lastAt = performance.now();
      if (answer.firstAt === null) {
        answer.firstAt = answer.lastAt;
        answer.firstAfter = (answer.firstAt - sentAt) / 1000;
      }
      answer.text += text;
      const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
      said.append(text);
      if (atEnd) messages.scrollTop = messages.scrollHeight;
    }
    if (answer.finish === null) throw new Refused("The answer broke off before its end; ask again.");
  };
  const busy = (is) => {
    byId("send").disabled = is;
    byId("stop").hidden = !is;
  };
  const ask = async (text) => {
    const talk = history; // New chat begins another one
    talk.push({ role: "user", content: text });
    add("You", text, "user");
    const message = add(chosen().dataset.model, "", "assistant");
    message.classList.add("under-way");
    const answer = {
      text: "", usage: null, helix: null, finish: null, firstAt: null, firstAfter: null, lastAt: null, stopped: false,
    };
    running = new AbortController();
    busy(true);
    status.textContent = "Waiting for the answer.";
    try {
      const sentAt = performance.now();
      const response = await fetch(form.action, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          "X-CSRFToken": form.elements.csrfmiddlewaretoken.value,
        },
        body: JSON.stringify({ deployment: Number(chosen().value), ...request(talk) }),
        signal: running.signal,
      });
      if (!response.ok || response.redirected) throw await refusal(response);
      await follow(response, message, answer, sentAt);
      status.textContent = "The answer is complete.";
    } catch (error) {
      if (error.name === "AbortError") {
        answer.stopped = true;
        status.textContent = "Stopped.";
      } else {
        const text = error instanceof Refused ? error.message : "The site does not answer; check that it runs and try again.";
        const problem = document.createElement("p");
        problem.className = "problem";
        problem.textContent = text;
        problem.setAttribute("role", "alert");
        message.querySelector(".said").after(problem);
        status.textContent = "";
      }
    } finally {
      running = null;
      busy(false);
      message.classList.remove("under-way");
    }
    showFacts(message, answer);
    // What was not answered is not part of the talk; the text goes back to where it was typed.
    if (answer.text) talk.push({ role: "assistant", content: answer.text });
    else {
      talk.pop();
      if (!answer.stopped && answer.finish === null && talk === history && !prompt.value) prompt.value = text;
    }
    showCurl();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value.trim();
    if (running || !text || !fields.every((field) => field.reportValidity())) return;
    prompt.value = "";
    ask(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", () => {
    running?.abort();
    history = [];
    messages.replaceChildren();
    status.textContent = "";
    showCurl();
    prompt.focus();
  });
  for (const field of fields) field.addEventListener("input", showCurl);
  showCurl();
})();
