// The access token, where the server asks for one: kept for this tab, sent with each question, shown nowhere.

const KEY = "backstop-token";

/** What a request carries. */
export function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Asks for a token in `form`, and calls `again` when there is one. */
export function ask(form, again) {
  const field = form.querySelector("input");
  sessionStorage.removeItem(KEY);
  form.hidden = false;
  field.focus();
  form.onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, field.value.trim());
    field.value = "";
    form.hidden = true;
    again();
  };
}
