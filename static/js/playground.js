// The playground: posts the chat to this site, which carries it to the coordinator, and shows the answer
// as its tokens come, with what the coordinator says of it at the end.
"use strict";

(() => {
  const { fill } = HelixTexts;
  const byId = (id) => document.getElementById(id);
  const form = byId("chat");
  const messages = byId("messages");
  const prompt = byId("prompt");
  const status = byId("chat-status");
  // Each pane asks on its own: another model or temperature, and what that one said before.
  const panes = [
    { deployment: byId("deployment"), temperature: byId("temperature"), history: [] },
    { deployment: byId("deployment-2"), temperature: byId("temperature-2"), history: [] },
  ];
  const beside = byId("beside");
  const open = () => (beside.checked ? panes : panes.slice(0, 1));
  const fields = () => [byId("system"), byId("max-tokens"), prompt,
    ...open().flatMap((pane) => [pane.deployment, pane.temperature])];
  let running = []; // the AbortController of each answer under way

  const chosen = (pane) => pane.deployment.selectedOptions[0];
  // An empty field is left out, so the server's default holds.
  const request = (pane, said) => {
    const body = { messages: said };
    const system = byId("system").value.trim();
    if (system) body.messages = [{ role: "system", content: system }, ...said];
    const temperature = pane.temperature.value;
    const maxTokens = byId("max-tokens").value;
    if (temperature !== "") body.temperature = Number(temperature);
    if (maxTokens !== "") body.max_tokens = Number(maxTokens);
    return body;
  };
  const showCode = () => {
    const [pane] = panes;
    const next = [...pane.history, { role: "user", content: prompt.value.trim() || "Hello" }];
    const body = { model: chosen(pane).dataset.model, ...request(pane, next), stream: true };
    byId("snippet").textContent = HelixSnippets.write(byId("language").value, chosen(pane).dataset.url, body);
  };

  const add = (who, text, kind, place) => {
    byId("no-messages")?.remove();
    const message = byId("answer-template").content.firstElementChild.cloneNode(true);
    message.classList.add(kind);
    message.querySelector(".who").textContent = who;
    message.querySelector(".said").textContent = text;
    place.append(message);
    messages.scrollTop = messages.scrollHeight;
    return message;
  };
  // Who reads the end goes on seeing it when more is said; who has scrolled up stays there.
  const goingOn = (change) => {
    const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
    change();
    if (atEnd) messages.scrollTop = messages.scrollHeight;
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
    if (tokens !== undefined) parts.push(fill(ngettext("%(count)s token", "%(count)s tokens", tokens), { count: tokens }));
    const took = answer.lastAt - answer.firstAt;
    if (tokens > 1 && took > 0) {
      parts.push(`TPOT ${seconds(took / 1000 / (tokens - 1))}`);
      parts.push(fill(gettext("%(rate)s tokens/s after the first"), { rate: number((tokens - 1) / (took / 1000), 3) }));
    }
    if (answer.finish === "length") parts.push(gettext("ended at the longest answer allowed"));
    if (answer.stopped) parts.push(gettext("stopped"));
    return parts;
  };
  // A bar of two parts: until the first token, and from there on.
  const showTime = (message, answer) => {
    if (answer.firstAfter === null || answer.lastAt === null) return;
    const rest = (answer.lastAt - answer.firstAt) / 1000;
    const bar = message.querySelector(".way");
    const parts = [[answer.firstAfter, "first"], [rest, "later"]].map(([length, kind]) => {
      const part = document.createElement("i");
      part.className = kind;
      part.style.flexGrow = String((100 * length) / (answer.firstAfter + rest));
      return part;
    });
    bar.replaceChildren(...parts);
    bar.setAttribute("aria-label", fill(gettext("%(first)s to the first token, %(rest)s for the others, as seen here"), { first: seconds(answer.firstAfter), rest: seconds(rest) }));
    bar.title = bar.getAttribute("aria-label");
    message.querySelector(".ways").hidden = false;
  };
  const showFacts = (message, answer) => {
    const footer = message.querySelector("footer");
    const path = answer.helix?.pipeline ?? [];
    const nodes = path.flatMap((hop, index) => [
      ...(index ? ["→"] : []), chip(`${hop.node} [${hop.first}, ${hop.end})`, "live"),
    ]);
    footer.replaceChildren(...facts(answer).map((text) => chip(text, "")), ...nodes);
    footer.hidden = !footer.childNodes.length;
    showTime(message, answer);
    if (answer.helix?.request) linkTrace(footer, answer.helix.request);
  };
  // A coordinator traces some requests, and tells of them within about a second of their end.
  const linkTrace = async (footer, request) => {
    for (let look = 0; look < 4 && footer.isConnected; look += 1) {
      await new Promise((resolve) => { setTimeout(resolve, 1000 * look); });
      const found = await fetch(`/api/v1/requests/?request=${request}&limit=1`).catch(() => null);
      if (!found?.ok) return;
      if (!(await found.json()).results.length) continue;
      const link = document.createElement("a");
      link.href = `/requests/${request}/`;
      link.textContent = gettext("Where its time went");
      goingOn(() => footer.append(link));
      return;
    }
  };

  class Refused extends Error {}
  const refusal = async (response) => {
    if (response.redirected) return new Refused(gettext("You are logged out. Log in again in another tab, then send once more."));
    const text = await response.text();
    let message = null;
    try { message = JSON.parse(text).error.message; } catch { /* not an error object: the status says it all */ }
    if (message === null) message = fill(gettext("The site answered %(status)s; reload the page and try again."), { status: `${response.status} ${response.statusText}` });
    const wait = response.headers.get("Retry-After");
    return new Refused(wait ? fill(gettext("%(message)s Try again in %(wait)s s."), { message, wait }) : message);
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
      goingOn(() => said.append(text));
    }
    if (answer.finish === null) throw new Refused(gettext("The answer broke off before its end; ask again."));
  };
  const busy = (is) => {
    byId("send").disabled = is;
    byId("stop").hidden = !is;
  };
  const answerIn = async (pane, text, place) => {
    const talk = pane.history; // New chat begins another one
    talk.push({ role: "user", content: text });
    const message = add(chosen(pane).dataset.model, "", "assistant", place);
    message.classList.add("under-way");
    const answer = {
      text: "", usage: null, helix: null, finish: null, firstAt: null, firstAfter: null, lastAt: null, stopped: false,
      refused: false,
    };
    const controller = new AbortController();
    running.push(controller);
    try {
      const sentAt = performance.now();
      const response = await fetch(form.action, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          "X-CSRFToken": form.elements.csrfmiddlewaretoken.value,
        },
        body: JSON.stringify({ deployment: Number(chosen(pane).value), ...request(pane, talk) }),
        signal: controller.signal,
      });
      if (!response.ok || response.redirected) throw await refusal(response);
      await follow(response, message, answer, sentAt);
    } catch (error) {
      if (error.name === "AbortError") answer.stopped = true;
      else {
        answer.refused = true;
        const problem = document.createElement("p");
        problem.className = "problem";
        problem.textContent = error instanceof Refused ? error.message : gettext("The site does not answer; check that it runs and try again.");
        problem.setAttribute("role", "alert");
        goingOn(() => message.querySelector(".said").after(problem));
      }
    } finally {
      message.classList.remove("under-way");
    }
    goingOn(() => showFacts(message, answer));
    // What was not answered is not part of the talk.
    if (answer.text) talk.push({ role: "assistant", content: answer.text });
    else talk.pop();
    return answer;
  };
  const said = (answers) => {
    if (answers.some((answer) => answer.stopped)) return gettext("Stopped.");
    if (answers.some((answer) => answer.refused)) return "";
    return answers.length > 1 ? gettext("Both answers are complete.") : gettext("The answer is complete.");
  };
  const ask = async (text) => {
    const asked = open();
    const talks = asked.map((pane) => pane.history);
    add(gettext("You"), text, "user", messages);
    const place = document.createElement("div");
    place.className = asked.length > 1 ? "answers two" : "answers";
    messages.append(place);
    running = [];
    busy(true);
    status.textContent = gettext("Waiting for the answer.");
    const answers = await Promise.all(asked.map((pane) => answerIn(pane, text, place)));
    running = [];
    busy(false);
    status.textContent = said(answers);
    // A text that nobody answered goes back to where it was typed.
    const unheard = answers.every((answer) => !answer.text && !answer.stopped && answer.finish === null);
    if (unheard && talks[0] === panes[0].history && !prompt.value) prompt.value = text;
    showCode();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value.trim();
    if (running.length || !text || !fields().every((field) => field.reportValidity())) return;
    prompt.value = "";
    ask(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  const stop = () => { for (const controller of running) controller.abort(); };
  byId("stop").addEventListener("click", stop);
  byId("clear").addEventListener("click", () => {
    stop();
    for (const pane of panes) pane.history = [];
    messages.replaceChildren();
    status.textContent = "";
    showCode();
    prompt.focus();
  });
  // A second answer goes on from what the first one said; without one, its talk is forgotten.
  beside.addEventListener("change", () => {
    byId("second").hidden = !beside.checked;
    panes[1].history = beside.checked ? [...panes[0].history] : [];
  });
  for (const field of [byId("deployment"), byId("system"), byId("temperature"), byId("max-tokens"), prompt, byId("language")]) {
    field.addEventListener("input", showCode);
  }
  showCode();
})();
