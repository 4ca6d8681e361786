(() => {
  const form = document.querySelector("form.filter");
  const count = document.querySelector("output");
  const rows = [...document.querySelectorAll("tr.run")];
  const bodies = [...document.querySelectorAll(".list tbody")];
  const none = document.querySelector(".none");
  const elsewhere = [...document.querySelectorAll("a[data-keep]")];
  const said = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const number = new Intl.NumberFormat("en-GB");

  const show = () => {
    const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const { o, r } = row.dataset;
      row.hidden = (form.outcome.value && o !== form.outcome.value)
        || (form.runbook.value && r !== form.runbook.value)
        || !words.every(word => said.get(row).includes(word));
      if (!row.hidden) shown += 1;
    }
    for (const body of bodies) body.hidden = !body.querySelector("tr.run:not([hidden])");
    const here = number.format(rows.length);
    count.value = shown === rows.length ? `all ${here} shown` : `${number.format(shown)} of ${here} shown`;
    none.hidden = shown > 0 || rows.length === 0;
    for (const link of elsewhere) link.hash = location.hash;
  };
  const choose = (field, value) => {
    field.value = value;
    if (field.value !== value) field.value = "";
  };
  const read = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const name of ["outcome", "runbook", "q"]) choose(form[name], state.get(name) ?? "");
    if (![...form.querySelectorAll("[name=outcome]")].some(box => box.checked)) form.outcome.value = "";
    show();
  };
  const write = () => {
    const state = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
    show();
  };
  form.addEventListener("input", write);
  form.addEventListener("submit", event => event.preventDefault());
  none.querySelector("button").addEventListener("click", () => { form.reset(); write(); form.q.focus(); });
  addEventListener("hashchange", read);
  for (const link of document.querySelectorAll(".trends a")) {
    link.addEventListener("click", () => setTimeout(() => document.querySelector("#runs").scrollIntoView()));
  }
  form.hidden = false;
  read();
})();
