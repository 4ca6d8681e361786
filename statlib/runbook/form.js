// Puts a text into the notebook's parameters cell, in front ends whose editors are CodeMirror (JupyterLab, Notebook 7).
// The text replaces what the editor holds, by the editor's own transaction: it can be undone, and is saved with the
// notebook. Nothing is written unless exactly one cell assigns exactly the expected names.

const ASSIGNED = /^([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=(?!=)/gm;

function editorOf(content) {
  const part = content.cmTile ?? content.cmView;
  return part?.view ?? part?.root?.view ?? part?.editorView;
}

function assigns(text, names) {
  const found = [...text.matchAll(ASSIGNED)].map((match) => match[1]);
  return found.length === names.length && names.every((name) => found.includes(name));
}

function write(element, names, source) {
  const notebook = element.closest(".jp-Notebook");
  if (!notebook) return "the form is not shown inside a notebook";
  const editors = [...notebook.querySelectorAll(".jp-CodeCell .cm-content")].map(editorOf).filter(Boolean);
  const fitting = editors.filter((editor) => assigns(editor.state.doc.toString(), names));
  if (fitting.length !== 1) return `${fitting.length} cells in view assign these parameters`;
  const [editor] = fitting;
  editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: source } });
  return editor.state.doc.toString() === source ? "" : "the cell cannot be edited";
}

export default {
  render({ model, el }) {
    const answer = ({ request, names, source }) => {
      let problem;
      try {
        problem = write(el, names, source);
      } catch (error) {
        problem = "the front end raised " + error.name;
      }
      model.send({ request, problem });
    };
    model.on("msg:custom", answer);
    return () => model.off("msg:custom", answer);
  },
};
