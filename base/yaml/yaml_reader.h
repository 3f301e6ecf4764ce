// A table-driven reader of YAML mappings for files that people write. It does not stop at the first
// problem of a file, but collects all problems with their lines and columns.
//
//   ModelSpec model;
//   const Table table = {Required(Whole("layers", &model.layers, 1, 4096)),
//                        Flag("tied", &model.tied)};
//   Reader reader("run.yaml");
//   reader.ReadMap(node, "", table);
//   LH_RETURN_IF_ERROR(reader.ToStatus());
//
// A source is a file, or an override on the command line. Reading the same table again from another
// source overwrites the values that this source names and keeps the others. A path is the dotted
// name of a value: "train.steps". Fields point to their targets, which must outlive the table. A
// file is read only as deep as the tables go, so aliases that contain themselves do no harm. Not
// thread-safe.
#pragma once

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul::config {

// The position of a value. `line` and `column` count from 1. Line 0: the source has no lines,
// because it is an override on the command line.
struct Place {
  std::string source;
  int line = 0;
  int column = 0;
  // "run.yaml:3:12", or only the source for line 0.
  std::string ToString() const;
};

// Parses one YAML document. kInvalidArgument "<file>:<line>:<column>: ..." for text that is not
// UTF-8, has control characters, is not YAML, has more than one document or is larger than 1 MiB.
// An empty document gives a null node. `source`: the file's name, for messages.
StatusOr<YAML::Node> LoadYaml(std::string_view text, std::string_view source);

// Describes a node for messages, shortened: "'abc'", "nothing", "a list", "a mapping".
std::string Describe(const YAML::Node& node);

class Reader;

// A key of a mapping, and how to read its value.
struct Field {
  std::string key;
  std::string expected;  // "a whole number from 1 to 64"
  // Reads the value of the key from `node` into the field's target. `path` is the path of the
  // value. Reports problems to `reader`.
  std::function<void(Reader& reader, const YAML::Node& node, const std::string& path)> read;
  bool required = false;
  std::vector<Field> section;  // the fields of a nested mapping
};
using Table = std::vector<Field>;

// Reads mappings, and collects problems and the places of values.
class Reader {
 public:
  // `source`: the name of the first source, for messages.
  explicit Reader(std::string source) : source_(std::move(source)) {}

  // Returns what a key of another program is called here, for the message about an unknown key:
  // "train.optimizer.lr", or "" if the key is not known elsewhere either. `value`: the key's.
  using OtherName = std::function<std::string(const std::string& key, const YAML::Node& value)>;
  void SetOtherNames(OtherName other_name) { other_name_ = std::move(other_name); }

  // Call SetSource before you read values of another source. `has_lines` is false for overrides.
  void SetSource(std::string source, bool has_lines);

  // Reads the mapping `node` by `table`. `path` is the path of the mapping; "" is the whole
  // document. A null node is an empty mapping.
  void ReadMap(const YAML::Node& node, const std::string& path, const Table& table);
  // Reports every required key of `table` that no source had. Call RequireAll after all sources.
  void RequireAll(const Table& table, const std::string& path = "");

  Place PlaceOf(const YAML::Node& node) const;
  // Returns the position where the value `path` was set last. If no source has set the value,
  // returns the position of its section, else the start of the first source.
  Place PlaceOf(std::string_view path) const;
  // Whether a source, or Assume, has set the value of `path`.
  bool Has(const std::string& path) const { return places_.contains(path); }
  // Whether the values of all `paths` are valid so far: no problem was found with one of them or
  // with a section around it, and RequireAll did not report one as missing. Call Sound before a
  // check that compares several values.
  bool Sound(std::initializer_list<std::string_view> paths) const;
  // Notes that the value of `path` was derived from the value of `from`. Problems with `path` are
  // then shown at the place of `from`, and `path` is valid if `from` is. Does nothing if a source
  // has set `path` itself.
  void Assume(const std::string& path, std::string_view from);

  // Marks the value of `path` as invalid, because a later check found a fault.
  void Distrust(const std::string& path) { faulty_.insert(path); }

  // Add a problem. FailExpected words it as "<path>: expected <expected>, got <node>".
  void Fail(const Place& place, std::string text);
  void Fail(const YAML::Node& node, std::string text) { Fail(PlaceOf(node), std::move(text)); }
  void FailExpected(const YAML::Node& node, const std::string& path, std::string_view expected);
  bool ok() const { return problems_.empty(); }

  // Returns OK, or one kInvalidArgument with a line for each problem, in the order of the file.
  // Overrides come last. After 50 lines the message only has the number of further problems.
  Status ToStatus() const;

 private:
  struct Problem {
    Place place;
    std::string text;
  };
  std::string source_;
  OtherName other_name_;
  bool has_lines_ = true;
  std::string first_source_;
  std::map<std::string, Place, std::less<>> places_;
  std::set<std::string, std::less<>> faulty_;  // paths with a problem, and the sections around them
  // Sections that should be mappings and are not: their missing keys are not reported.
  std::set<std::string, std::less<>> broken_;
  std::vector<Problem> problems_;
};

// The functions below make fields. A field sets `*target` only to a valid value, and otherwise
// reports a problem. `least` and `most` are valid values themselves.
//
// Required returns `field` as one that RequireAll reports if no source has it.
Field Required(Field field);
Field Whole(std::string key, uint32_t* target, uint32_t least, uint32_t most);
Field Whole(std::string key, uint64_t* target, uint64_t least, uint64_t most);
// A whole number or "auto", which sets nullopt.
Field WholeOrAuto(std::string key, std::optional<uint32_t>* target, uint32_t least, uint32_t most);

struct RealRange {
  double least = 0;
  double most = 0;
  bool above_least = false;  // `least` itself is outside
  bool below_most = false;   // `most` itself is outside
  std::string ToString() const;
};
Field Real(std::string key, double* target, RealRange range);
// A list of numbers, each inside `range`; at most 4,096.
Field Reals(std::string key, std::vector<double>* target, RealRange range);
// Returns the number in `node` if it is inside `range`. Else reports a problem and returns nullopt.
std::optional<double> ReadReal(Reader& reader, const YAML::Node& node, const std::string& path,
                               const RealRange& range);
Field Flag(std::string key, bool* target);
// A text that `parse` converts to the value.
template <class T>
Field Parsed(std::string key, T* target, std::string expected,
             StatusOr<T> (*parse)(std::string_view text));
// A text. `check` returns what is wrong with the text, or "".
using TextCheck = std::function<std::string(std::string_view)>;
Field Text(std::string key, std::string* target, std::string expected, TextCheck check);
// One word of a short list. Null `target`: only checks the word.
Field OneOf(std::string key, std::string* target, std::vector<std::string> words);
// A duration such as "20ms".
Field DurationField(std::string key, absl::Duration* target, absl::Duration least,
                    absl::Duration most);
// A number of bytes such as "8GiB".
Field BytesField(std::string key, uint64_t* target);
// A nested mapping.
Field Section(std::string key, Table table);
// One of `values`, written as its ToString.
template <class T>
Field Choice(std::string key, T* target, const std::vector<T>& values);

// Joins words for a message: "a, b".
std::string ListOf(const std::vector<std::string>& words);
// Returns the text of a scalar. For another kind of node, reports a problem and returns nullopt.
std::optional<std::string> ReadScalar(Reader& reader, const YAML::Node& node,
                                      const std::string& path, std::string_view expected);
// True if a scalar has quotes, which make it a text in YAML even if it looks like a number.
bool IsQuoted(const YAML::Node& node);

// Returns the value that `parse` makes from a scalar. If `parse` refuses the text, reports the
// error of `parse` as a problem and returns nullopt.
template <class T>
std::optional<T> ReadParsed(Reader& reader, const YAML::Node& node, const std::string& path,
                            std::string_view expected,
                            StatusOr<T> (*parse)(std::string_view text)) {
  const std::optional<std::string> text = ReadScalar(reader, node, path, expected);
  if (!text) return std::nullopt;
  StatusOr<T> value = parse(*text);
  if (value.ok()) return *std::move(value);
  reader.Fail(node, fmt::format("{}: {}", path, Message(value.status())));
  return std::nullopt;
}

template <class T>
Field Parsed(std::string key, T* target, std::string expected,
             StatusOr<T> (*parse)(std::string_view text)) {
  Field field;
  field.key = std::move(key);
  field.expected = std::move(expected);
  field.read = [target, parse, wanted = field.expected](Reader& reader, const YAML::Node& node,
                                                        const std::string& path) {
    if (const auto value = ReadParsed(reader, node, path, wanted, parse)) *target = *value;
  };
  return field;
}

template <class T>
Field Choice(std::string key, T* target, const std::vector<T>& values) {
  std::vector<std::string> words;
  for (const T& value : values) words.emplace_back(ToString(value));
  // The field of words checks the text; its value is then looked up.
  Field field = OneOf(std::move(key), nullptr, words);
  field.read = [check = field.read, target, values, words](Reader& reader, const YAML::Node& node,
                                                           const std::string& path) {
    check(reader, node, path);
    for (size_t i = 0; i < words.size(); ++i) {
      if (node.IsScalar() && node.Scalar() == words[i]) *target = values[i];
    }
  };
  return field;
}

}  // namespace longhaul::config
