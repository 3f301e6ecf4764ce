#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "run/file/keys.h"
#include "run/file/run_spec.h"
#include "run/model/family.h"

namespace longhaul {
namespace config {
namespace {

// Appends what `node` has below it. `rows` begin with `prefix`, and those of a section stand
// together.
void AddNodes(const std::vector<Key>& rows, size_t begin, size_t end, size_t prefix,
              KeyNode* node) {
  while (begin < end) {
    const std::string_view rest = std::string_view(rows[begin].path).substr(prefix);
    KeyNode& child = node->children.emplace_back();
    child.name = rest.substr(0, rest.find('.'));
    if (child.name == rest) child.key = &rows[begin];
    size_t last = begin;
    while (last < end &&
           (rows[last].path.substr(prefix) == child.name ||
            rows[last].path.substr(prefix).starts_with(std::string(child.name) + "."))) {
      ++last;
    }
    AddNodes(rows, begin + (child.key != nullptr ? 1 : 0), last, prefix + child.name.size() + 1,
             &child);
    begin = last;
  }
}

void AddCompared(const KeyNode& node, std::vector<const Key*>* keys) {
  if (node.key != nullptr && node.key->value.copy) {
    keys->push_back(node.key);
    return;
  }
  for (const KeyNode& child : node.children) AddCompared(child, keys);
}

Table TableOf(const KeyNode& node, Draft* draft) {
  Table table;
  for (const KeyNode& child : node.children) {
    const Key* const key = child.key;
    if (key != nullptr && key->value.field) {
      table.push_back(key->value.field(std::string(child.name), draft));
      table.back().required = key->notes.required;
      if (key->notes.required && !key->notes.otherwise.empty()) {
        table.back().expected += fmt::format(", or {} instead", key->notes.otherwise);
      }
      continue;
    }
    table.push_back(Section(std::string(child.name), TableOf(child, draft)));
    if (key != nullptr) key->value.section(&table.back(), draft);
  }
  return table;
}

// Returns the key of a node without children; null for a section.
const Key* LeafOf(const KeyNode& node) {
  return node.children.empty() ? node.key : nullptr;
}

bool IsWritten(const KeyNode& node) {
  const Key* const leaf = LeafOf(node);
  return leaf == nullptr || leaf->value.text;
}

// "{ lr: 0.1, ... }", without keys that do not apply. `places`: with the keys that are places.
std::string FlowText(const KeyNode& section, const RunSpec& spec, bool places) {
  std::string out;
  for (const KeyNode& node : section.children) {
    if (!IsWritten(node) || (node.key != nullptr && !node.key->Applies(spec))) continue;
    if (node.key != nullptr && node.key->notes.is_place && !places) continue;
    const Key* const leaf = LeafOf(node);
    out += fmt::format("{} {}: {}", out.empty() ? "" : ",", node.name,
                       leaf != nullptr ? leaf->value.text(spec) : FlowText(node, spec, places));
  }
  return fmt::format("{{{} }}", out);
}

// Keys that do not apply are comments, so that a reader sees that they are there.
void AddLines(const KeyNode& section, const RunSpec& spec, const std::string& indent,
              std::string* out) {
  for (const KeyNode& node : section.children) {
    if (!IsWritten(node)) continue;
    if (node.key != nullptr && !node.key->Applies(spec)) {
      *out += fmt::format("{}# {}:\n", indent, node.name);
    } else if (const Key* const leaf = LeafOf(node); leaf != nullptr) {
      const std::string text = leaf->value.text(spec);
      const std::string lines = absl::StrReplaceAll(text, {{"\n", "\n  " + indent}});
      *out +=
          fmt::format("{}{}:{}{}\n", indent, node.name, text.starts_with('\n') ? "" : " ", lines);
    } else {
      *out += fmt::format("{}{}:\n", indent, node.name);
      AddLines(node, spec, indent + "  ", out);
    }
  }
}

const KeyNode* FindNode(const KeyNode& node, const Key& key) {
  if (node.key == &key) return &node;
  for (const KeyNode& child : node.children) {
    if (const KeyNode* found = FindNode(child, key)) return found;
  }
  return nullptr;
}

}  // namespace

bool Key::Applies(const RunSpec& spec) const {
  if (notes.of_family) {
    const std::string_view name = std::string_view(path).substr(path.rfind('.') + 1);
    return model::FindKey(model::FamilyOf(spec.model), name) != nullptr;
  }
  return notes.applies == nullptr || notes.applies(spec);
}

const std::vector<Key>& Keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> all = TrainingKeys();
    for (Key& row : SamplesKeys()) all.push_back(std::move(row));
    for (Key& row : RunningKeys()) all.push_back(std::move(row));
    for (Key& row : VerifyKeys()) all.push_back(std::move(row));
    return all;
  }();
  return keys;
}

const KeyNode& KeyTree() {
  static const KeyNode root = [] {
    KeyNode node;
    AddNodes(Keys(), 0, Keys().size(), 0, &node);
    return node;
  }();
  return root;
}

const std::vector<const Key*>& ComparedKeys() {
  static const std::vector<const Key*> keys = [] {
    std::vector<const Key*> all;
    AddCompared(KeyTree(), &all);
    return all;
  }();
  return keys;
}

RunSpec OnlyWhatAffects(unsigned affects, const RunSpec& spec) {
  RunSpec only;
  for (const Key* key : ComparedKeys()) {
    if ((key->affects & affects) != 0) key->value.copy(spec, &only);
  }
  return only;
}

Table TableOf(Draft* draft) {
  return TableOf(KeyTree(), draft);
}

std::string TextOf(const Key& key, const RunSpec& spec) {
  if (!key.Applies(spec)) return "left out";
  if (key.value.text) return key.value.text(spec);
  return FlowText(*FindNode(KeyTree(), key), spec, /*places=*/false);
}

}  // namespace config

std::string ToYaml(const RunSpec& spec) {
  std::string out;
  config::AddLines(config::KeyTree(), spec, "", &out);
  return out;
}

std::string SectionOverride(std::string_view section, const RunSpec& spec) {
  const config::KeyNode* node = &config::KeyTree();
  const std::vector<std::string> names = absl::StrSplit(std::string(section), '.');
  for (const std::string& name : names) {
    const auto child = std::ranges::find(node->children, name, &config::KeyNode::name);
    LH_CHECK(child != node->children.end(), "a run file has no section {}", section);
    node = &*child;
  }
  return fmt::format("{}={}", section, config::FlowText(*node, spec, /*places=*/true));
}

}  // namespace longhaul
