// Keeps a served page up to date, and brings a person's answers to the daemon.
(() => {
  const { at, clock } = kit;
  const told = at("live");
  told.hidden = false;
  // What is bad is read out; that all is well, every two seconds, is not.
  const say = (mood, text) => {
    told.className = `live ${mood}`;
    if (mood === "bad") told.setAttribute("role", "alert");
    else told.removeAttribute("role");
    told.textContent = text;
  };
  say("soft", "Connecting…");
  const news = new EventSource(`events?${page.numbers.join("-")}`);
  let last = 0;
  for (const name of ["record", "present"]) news.addEventListener(name, (event) => page.update(JSON.parse(event.data)));
  news.addEventListener("beat", (event) => {
    last = Number(event.data);
    say("good", `● Live, as of ${clock(last, true)}`);
  });
  news.addEventListener("end", () => {
    news.close();
    say("bad", "Ended: colibri-mcp glasspane --open has ended. What you see is how it was then.");
  });
  news.addEventListener("error", () => say("bad", `Not connected${last ? ` since ${clock(last, true)}` : ""}: is colibri-mcp glasspane --open still running?`));

  page.answer = async (id, approve) => {
    const response = await fetch("decide", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Colibri-Page": page.data.live.secret },
      body: JSON.stringify({ id, approve }),
    });
    const { said, refused } = response.status === 200 || response.status === 409 ? await response.json() : { refused: `status ${response.status}` };
    if (refused) throw new Error(refused);
    return said;
  };
})();
