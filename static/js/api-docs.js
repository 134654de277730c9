// Shows the OpenAPI document; requests go out as whoever is logged in.
const place = document.getElementById("api-docs");
const followTheme = () => {
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  const dark = scheme === "dark"
    || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark-mode", dark);
};
document.addEventListener("helix-theme", () => {
  document.documentElement.classList.remove("dark-mode");  // it sets a scheme of its own
  followTheme();
});
followTheme();
SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  validatorUrl: null,
  onComplete: () => {
    // The page has its main part; what Swagger calls so is within it.
    place.querySelector("main")?.setAttribute("role", "presentation");
    place.setAttribute("aria-busy", "false");
  },
  requestInterceptor: (request) => {
    request.headers["X-CSRFToken"] = place.dataset.csrf;
    return request;
  },
});
