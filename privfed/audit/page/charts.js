const root = document.documentElement;
const specs = JSON.parse(document.getElementById("chart-specs").textContent);
const places = [...document.querySelectorAll("[data-chart]")];
const draw = (place) =>
  vegaEmbed(place, specs[place.dataset.chart], { actions: false, renderer: "svg" }).then(() => {
    place.setAttribute("role", "img");
    place.querySelectorAll("svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
  });
Promise.all(places.map(draw))
  .then(() => { root.dataset.charts = "drawn"; })
  .catch((error) => { root.dataset.charts = "failed"; console.error(error); });
window.addEventListener("beforeprint", () =>
  document.querySelectorAll("details:not(.long)").forEach((part) => { part.open = true; }),
);
