// Starts `lpcl lsp` and hands the rest to the language client.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const [command, ...args] = workspace.getConfiguration("lpcl").get("server");
  client = new LanguageClient("lpcl", "LPCL", { command, args }, { documentSelector: [{ language: "lpcl" }] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
