"use strict";
{
  const rows = [...document.querySelectorAll("#matrix tbody tr")];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every(word => texts[place].includes(word));
      shown += !row.hidden;
    });
    count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
  };
  document.getElementById("filter").hidden = false;
  search.addEventListener("input", filter);
  filter();
}
