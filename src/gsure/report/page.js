// Enlarges the pictures of restorations. A click or Enter opens all pictures of one sample, Escape closes them.
for (const viewer of document.querySelectorAll("[data-viewer]")) {
  const dialog = viewer.querySelector("dialog"), views = dialog.querySelector(".views");
  const slider = dialog.querySelector("input"), position = dialog.querySelector("output");
  const images = [...viewer.querySelectorAll("img[data-tile]")];
  const layouts = images.map(image => {
    const [width, height, gap, columns] = image.dataset.tile.split(" ").map(Number);
    return { width, height, gap, columns, unit: image.naturalWidth / (columns * (width + gap) - gap) };
  });
  const canvases = images.map((image, k) => {
    const caption = image.closest("figure").querySelector("figcaption").cloneNode(true);
    const figure = document.createElement("figure"), canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", caption.textContent.trim());
    canvas.width = layouts[k].width * layouts[k].unit;
    canvas.height = layouts[k].height * layouts[k].unit;
    figure.append(canvas, caption);
    views.append(figure);
    return canvas;
  });
  const bar = viewer.querySelector(".bar"), place = document.createComment("colour bar");
  if (bar) bar.replaceWith(place, bar);  // without maps there is none

  const show = number => {
    slider.value = number;
    const shown = Number(slider.value);
    position.textContent = `${shown} of ${slider.max}`;
    images.forEach((image, k) => {
      const { width, height, gap, columns, unit } = layouts[k], tile = shown - 1;
      const left = (tile % columns) * (width + gap) * unit, top = Math.floor(tile / columns) * (height + gap) * unit;
      const context = canvases[k].getContext("2d");
      context.clearRect(0, 0, canvases[k].width, canvases[k].height);
      context.drawImage(image, left, top, width * unit, height * unit, 0, 0, canvases[k].width, canvases[k].height);
    });
  };
  const open = number => { show(number); if (bar) dialog.append(bar); dialog.showModal(); slider.focus(); };
  dialog.addEventListener("close", () => { if (bar) place.after(bar); });

  images.forEach((image, k) => {
    image.tabIndex = 0;
    image.setAttribute("role", "button");
    image.setAttribute("aria-haspopup", "dialog");
    image.addEventListener("click", event => {
      const { width, gap, columns, unit } = layouts[k], scale = image.naturalWidth / image.clientWidth;
      open(1 + Math.min(columns - 1, Math.floor(event.offsetX * scale / ((width + gap) * unit))));
    });
    image.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open(slider.value);
    });
  });
  slider.addEventListener("input", () => show(slider.value));
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
}
