// A page opened from a disk may not fetch its neighbours, which search would do for its excerpts: results without excerpts then.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
