#include "base/yaml/yaml_reader.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/nearest.h"

namespace longhaul::config {
namespace {

constexpr size_t kLargestFile = 1u << 20;
constexpr size_t kMostProblems = 50;

// The length of the UTF-8 sequence at the front of `text`; 0 where it is not one.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
      (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

// The YAML library guesses encodings and replaces what it cannot read; say where it is instead.
Status CheckText(std::string_view text, std::string_view source) {
  Place place{std::string(source), 1, 1};
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      return InvalidArgument(
          "{}: expected UTF-8 text, got the byte 0x{:02x}; save the file as UTF-8",
          place.ToString(), c);
    }
    if (c < 0x20 && c != '\n' && c != '\r' && c != '\t') {
      return InvalidArgument("{}: control character 0x{:02x}; remove it", place.ToString(), c);
    }
    if (c == '\n') {
      ++place.line;
      place.column = 1;
    } else {
      ++place.column;
    }
    text.remove_prefix(length);
  }
  return absl::OkStatus();
}

// Remembers where the second document of a file begins.
class DocumentCounter : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { last_start_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
  const YAML::Mark& last_start() const { return last_start_; }

 private:
  YAML::Mark last_start_;
};

// Not YAML::LoadAll, which goes on for ever at a stray ',' and takes all memory.
Status CheckOneDocument(const std::string& text, std::string_view source) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter counter;
  if (!parser.HandleNextDocument(counter) || !parser.HandleNextDocument(counter)) {
    return absl::OkStatus();
  }
  const YAML::Mark& mark = counter.last_start();
  const Place place{std::string(source), mark.line + 1, mark.column + 1};
  return InvalidArgument(
      "{}: expected the end of the file, got more; a configuration is one YAML document "
      "without '---' lines inside and without stray ',', ']' or '}}'",
      place.ToString());
}

std::string Printable(std::string_view text) {
  constexpr size_t kShown = 40;
  std::string out;
  for (const char c : text) {
    if (out.size() >= kShown && (static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      return out + "...";
    }
    out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  return out;
}

std::string Join(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

std::vector<std::string> KeysOf(const Table& table) {
  std::vector<std::string> keys;
  for (const Field& field : table) keys.push_back(field.key);
  return keys;
}

std::string UnknownKey(const std::string& key, const std::string& path, const Table& table) {
  const std::vector<std::string> keys = KeysOf(table);
  std::string hint = DidYouMean(key, keys);
  if (hint.empty()) {
    hint = fmt::format("; {} {}",
                       path.empty() ? "the keys are" : fmt::format("the keys of '{}' are", path),
                       ListOf(keys));
  }
  return fmt::format("unknown key '{}'{}", Printable(key), hint);
}

}  // namespace

std::string Place::ToString() const {
  return line == 0 ? source : fmt::format("{}:{}:{}", source, line, column);
}

StatusOr<YAML::Node> LoadYaml(std::string_view text, std::string_view source) {
  if (text.size() > kLargestFile) {
    return InvalidArgument("{}: {} bytes; a configuration has at most {}", source, text.size(),
                           kLargestFile);
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  LH_RETURN_IF_ERROR(CheckText(text, source));
  try {
    LH_RETURN_IF_ERROR(CheckOneDocument(std::string(text), source));
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    const Place place{std::string(source), error.mark.line + 1, error.mark.column + 1};
    return InvalidArgument("{}: not valid YAML: {}", place.ToString(), error.msg);
  } catch (const std::exception& error) {
    return InvalidArgument("{}: not valid YAML: {}", source, error.what());
  }
}

std::string Describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return fmt::format("'{}'", Printable(node.Scalar()));
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

std::string ListOf(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

void Reader::SetSource(std::string source, bool has_lines) {
  if (first_source_.empty()) first_source_ = source_;
  source_ = std::move(source);
  has_lines_ = has_lines;
}

Place Reader::PlaceOf(const YAML::Node& node) const {
  if (!has_lines_) return Place{source_, 0, 0};
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? Place{source_, 1, 1} : Place{source_, mark.line + 1, mark.column + 1};
}

Place Reader::PlaceOf(std::string_view path) const {
  while (!path.empty()) {
    if (const auto it = places_.find(path); it != places_.end()) return it->second;
    const size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
  return Place{first_source_.empty() ? source_ : first_source_, 1, 1};
}

bool Reader::Sound(std::initializer_list<std::string_view> paths) const {
  return std::all_of(paths.begin(), paths.end(), [&](std::string_view path) {
    if (faulty_.contains(path) || broken_.contains("")) return false;
    for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
      if (broken_.contains(path.substr(0, dot))) return false;
    }
    return true;
  });
}

void Reader::Assume(const std::string& path, std::string_view from) {
  if (!places_.emplace(path, PlaceOf(from)).second) return;
  if (!Sound({from})) faulty_.insert(path);
}

void Reader::Fail(const Place& place, std::string text) {
  problems_.push_back({place, std::move(text)});
}

void Reader::FailExpected(const YAML::Node& node, const std::string& path,
                          std::string_view expected) {
  Fail(node, fmt::format("{}: expected {}, got {}", path, expected, Describe(node)));
}

void Reader::ReadMap(const YAML::Node& node, const std::string& path, const Table& table) {
  if (node.IsNull()) return;
  if (!node.IsMap()) {
    broken_.insert(path);
    Fail(node,
         fmt::format("{}: expected a mapping with {}, got {}", path.empty() ? "the file" : path,
                     ListOf(KeysOf(table)), Describe(node)));
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const YAML::Node& key = entry.first;
    if (!key.IsScalar()) {
      Fail(key, fmt::format("expected a word as key, got {}", Describe(key)));
      continue;
    }
    const auto field = std::find_if(table.begin(), table.end(),
                                    [&](const Field& f) { return f.key == key.Scalar(); });
    if (field == table.end()) {
      const std::string other = other_name_ ? other_name_(key.Scalar(), entry.second) : "";
      Fail(key, other.empty() ? UnknownKey(key.Scalar(), path, table)
                              : fmt::format("unknown key '{}'; here it is {}",
                                            Printable(key.Scalar()), other));
      continue;
    }
    const std::string name = Join(path, field->key);
    if (!seen.insert(field->key).second) {
      Fail(key, fmt::format("the key '{}' is here twice; the first one is at {}", name,
                            PlaceOf(std::string_view(name)).ToString()));
      continue;
    }
    places_[name] = PlaceOf(entry.second.IsNull() ? key : entry.second);
    const size_t problems = problems_.size();
    field->read(*this, entry.second, name);
    if (problems_.size() == problems) continue;
    faulty_.insert(name);
    if (!entry.second.IsMap()) broken_.insert(name);
  }
}

void Reader::RequireAll(const Table& table, const std::string& path) {
  if (broken_.contains(path)) return;
  for (const Field& field : table) {
    const std::string name = Join(path, field.key);
    if (field.required && !Has(name)) {
      faulty_.insert(name);
      Fail(PlaceOf(std::string_view(path)),
           fmt::format("the key '{}' is missing; expected {}", name, field.expected));
    }
    RequireAll(field.section, name);
  }
}

Status Reader::ToStatus() const {
  if (problems_.empty()) return absl::OkStatus();
  std::vector<Problem> sorted = problems_;
  // Overrides (line 0) after the file, in the order of the command line.
  const auto rank = [](const Problem& p) {
    return std::pair(p.place.line == 0, std::pair(p.place.line, p.place.column));
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
  std::string text;
  for (size_t i = 0; i < sorted.size() && i < kMostProblems; ++i) {
    if (i > 0) text += '\n';
    text += fmt::format("{}: {}", sorted[i].place.ToString(), sorted[i].text);
  }
  if (sorted.size() > kMostProblems) {
    text += fmt::format("\nand {} more errors", sorted.size() - kMostProblems);
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace longhaul::config
