#include "run/file/key_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "base/yaml/yaml_text.h"
#include "run/file/keys.h"

namespace longhaul::config {
namespace {

constexpr std::string_view kHead = R"(# Keys of a run file

This page is generated: `longhaul keys > docs/guide/run_file_keys.md`. `longhaul --json keys` prints the same keys as a JSON Schema, with which an editor checks a run file.
[run_files.md](run_files.md) explains how the keys work together.

```console
$ longhaul --json keys
{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A run file of longhaul", ...
...
```

| column | says |
| --- | --- |
| affects | what a change makes necessary: `timing`, workers measure the times of layers anew; `stage`, workers build their stage anew; `model`, another model is trained |
| resume | whether a run may be resumed with another value |
)";

// A spec with the initial value of every key, also of sections that a file may leave out.
RunSpec Defaults() {
  RunSpec spec;
  spec.train.dtype = ComputeDtype::kAuto;
  spec.model.lora.emplace();
  spec.train.dpo.emplace();
  spec.replay.emplace();
  return spec;
}

std::string DefaultOf(const Key& key) {
  if (key.notes.required) return "required";
  if (!key.notes.otherwise.empty()) return key.notes.otherwise;
  if (!key.value.text) return "none";
  const std::string text = key.value.text(Defaults());
  return text.empty() || text == "[]" || text == "\"\"" ? "none" : fmt::format("`{}`", text);
}

std::string TypeOf(const Key& key) {
  if (!key.value.field) return "a section";
  Draft draft;
  return key.value.field(key.path, &draft).expected;
}

std::string AffectsOf(const Key& key) {
  std::vector<std::string_view> words;
  if ((key.affects & kTiming) != 0) words.push_back("timing");
  if ((key.affects & kStage) != 0) words.push_back("stage");
  if ((key.affects & kModel) != 0) words.push_back("model");
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

std::string ResumeOf(const Key& key) {
  if ((key.affects & kModel) == 0) return "may change";
  return key.notes.auto_is_open ? "kept; `auto` takes the run's" : "kept";
}

void AddRows(const KeyNode& node, std::string* page) {
  if (node.key != nullptr) {
    const Key& key = *node.key;
    *page += fmt::format("| `{}` | {}{} | {} | {} | {} | {} |\n", key.path, TypeOf(key),
                         key.notes.unit.empty() ? "" : fmt::format("; {}", key.notes.unit),
                         DefaultOf(key), key.doc, AffectsOf(key), ResumeOf(key));
  }
  for (const KeyNode& child : node.children) AddRows(child, page);
}

std::string SectionSchema(const KeyNode& section, const std::string& indent);

// What a key needs is known without the others: a preset says what a model needs.
bool IsRequired(const KeyNode& node) {
  return node.key != nullptr && node.key->notes.required && node.key->notes.applies == nullptr &&
         !node.key->path.starts_with("model.");
}

std::string NodeSchema(const KeyNode& node, const std::string& indent) {
  std::string members =
      node.children.empty() ? node.key->value.schema : SectionSchema(node, indent);
  if (node.key == nullptr) return fmt::format("{{{}}}", members);
  if (!node.children.empty() && !node.key->value.schema.empty()) {
    members = fmt::format(R"("anyOf": [{{{}}}, {{{}}}])", node.key->value.schema, members);
  }
  return fmt::format(R"({{"description": {}, {}}})", Quote(node.key->doc), members);
}

std::string SectionSchema(const KeyNode& section, const std::string& indent) {
  std::vector<std::string> properties, required;
  for (const KeyNode& node : section.children) {
    properties.push_back(
        fmt::format("\n{}  \"{}\": {}", indent, node.name, NodeSchema(node, indent + "  ")));
    if (IsRequired(node)) required.push_back(fmt::format("\"{}\"", node.name));
  }
  return fmt::format(
      R"("type": "object", "additionalProperties": false, "required": [{}], "properties": {{{}}})",
      fmt::join(required, ", "), fmt::join(properties, ","));
}

}  // namespace

std::string KeyPage() {
  std::string page(kHead);
  constexpr std::string_view kColumns =
      "\n| key | type | default | | affects | resume |\n| --- | --- | --- | --- | --- | --- |\n";
  std::string others;
  for (const KeyNode& section : KeyTree().children) {
    if (section.children.empty()) {
      AddRows(section, &others);
      continue;
    }
    page += fmt::format("\n## {}\n{}", section.name, kColumns);
    AddRows(section, &page);
  }
  return page + fmt::format("\n## Keys without a section\n{}{}", kColumns, others);
}

std::string KeySchema() {
  return fmt::format(
      "{{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\", "
      "\"title\": \"A run file of longhaul\", {}}}\n",
      SectionSchema(KeyTree(), ""));
}

}  // namespace longhaul::config
