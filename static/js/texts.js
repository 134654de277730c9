// Texts of scripts in the reader's language: gettext finds them in the catalogue that comes before
// this file; in English there is none. HelixTexts.fill puts values in place of %(name)s.
"use strict";

globalThis.gettext ??= (text) => text;
globalThis.ngettext ??= (one, many, count) => (count === 1 ? one : many);

globalThis.HelixTexts = {
  fill: (text, values) => text.replace(/%\((\w+)\)s/g, (_whole, name) => values[name]),
};
