// The kinds of values that a table of yaml_reader.h may have.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/nearest.h"
#include "base/units.h"
#include "base/yaml/yaml_reader.h"

namespace longhaul::config {
namespace {

template <class T>
std::optional<T> ReadWhole(Reader& reader, const YAML::Node& node, const std::string& path,
                           std::string_view expected, T least, T most) {
  const std::optional<std::string> text = ReadScalar(reader, node, path, expected);
  if (!text) return std::nullopt;
  T value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (IsQuoted(node) && error == std::errc()) {
    reader.Fail(node, fmt::format("{}: expected {}, got the text \"{}\"; remove the quotes", path,
                                  expected, *text));
    return std::nullopt;
  }
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most) {
    reader.FailExpected(node, path, expected);
    return std::nullopt;
  }
  return value;
}

std::string WholeRange(uint64_t least, uint64_t most) {
  return fmt::format("a whole number from {} to {}", least, most);
}

template <class T>
Field MakeWhole(std::string key, T* target, T least, T most) {
  Field field;
  field.key = std::move(key);
  field.expected = WholeRange(least, most);
  field.read = [target, least, most, expected = field.expected](
                   Reader& reader, const YAML::Node& node, const std::string& path) {
    if (const auto value = ReadWhole<T>(reader, node, path, expected, least, most))
      *target = *value;
  };
  return field;
}

}  // namespace

std::optional<std::string> ReadScalar(Reader& reader, const YAML::Node& node,
                                      const std::string& path, std::string_view expected) {
  if (!node.IsScalar()) {
    reader.FailExpected(node, path, expected);
    return std::nullopt;
  }
  for (const char c : node.Scalar()) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      reader.Fail(node, fmt::format("{}: expected {}, got control characters", path, expected));
      return std::nullopt;
    }
  }
  return node.Scalar();
}

bool IsQuoted(const YAML::Node& node) {
  return node.Tag() == "!";
}

Field Required(Field field) {
  field.required = true;
  return field;
}

Field Whole(std::string key, uint32_t* target, uint32_t least, uint32_t most) {
  return MakeWhole(std::move(key), target, least, most);
}

Field Whole(std::string key, uint64_t* target, uint64_t least, uint64_t most) {
  return MakeWhole(std::move(key), target, least, most);
}

Field WholeOrAuto(std::string key, std::optional<uint32_t>* target, uint32_t least, uint32_t most) {
  Field field;
  field.key = std::move(key);
  field.expected = WholeRange(least, most) + " or auto";
  field.read = [target, least, most, expected = field.expected](
                   Reader& reader, const YAML::Node& node, const std::string& path) {
    if (node.IsScalar() && node.Scalar() == "auto") {
      *target = std::nullopt;
    } else if (const auto value = ReadWhole(reader, node, path, expected, least, most)) {
      *target = value;
    }
  };
  return field;
}

std::string RealRange::ToString() const {
  const std::string from =
      above_least ? fmt::format("above {}", least) : fmt::format("from {}", least);
  return below_most ? fmt::format("a number {} and below {}", from, most)
                    : fmt::format("a number {} to {}", from, most);
}

std::optional<double> ReadReal(Reader& reader, const YAML::Node& node, const std::string& path,
                               const RealRange& range) {
  const std::optional<std::string> text = ReadScalar(reader, node, path, range.ToString());
  if (!text) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  const bool number =
      error == std::errc() && end == text->data() + text->size() && std::isfinite(value);
  if (number && IsQuoted(node)) {
    reader.Fail(node, fmt::format("{}: expected {}, got the text \"{}\"; remove the quotes", path,
                                  range.ToString(), *text));
    return std::nullopt;
  }
  const bool inside = number && (range.above_least ? value > range.least : value >= range.least) &&
                      (range.below_most ? value < range.most : value <= range.most);
  if (!inside) {
    reader.FailExpected(node, path, range.ToString());
    return std::nullopt;
  }
  return value == 0 ? 0.0 : value;  // no negative zero
}

Field Real(std::string key, double* target, RealRange range) {
  Field field;
  field.key = std::move(key);
  field.expected = range.ToString();
  field.read = [target, range](Reader& reader, const YAML::Node& node, const std::string& path) {
    if (const auto value = ReadReal(reader, node, path, range)) *target = *value;
  };
  return field;
}

Field Reals(std::string key, std::vector<double>* target, RealRange range) {
  constexpr size_t kMost = 4096;
  Field field;
  field.key = std::move(key);
  field.expected = fmt::format("a list of at most {} numbers, each {}", kMost, range.ToString());
  field.read = [target, range, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                          const std::string& path) {
    if (!node.IsSequence() || node.size() > kMost) {
      reader.FailExpected(node, path, expected);
      return;
    }
    std::vector<double> values;
    for (const YAML::Node& one : node) {
      const auto value = ReadReal(reader, one, path, range);
      if (!value) return;
      values.push_back(*value);
    }
    *target = std::move(values);
  };
  return field;
}

Field Flag(std::string key, bool* target) {
  Field field;
  field.key = std::move(key);
  field.expected = "true or false";
  field.read = [target](Reader& reader, const YAML::Node& node, const std::string& path) {
    const std::string text = node.IsScalar() && !IsQuoted(node) ? node.Scalar() : "";
    if (text == "true" || text == "True" || text == "TRUE") {
      *target = true;
    } else if (text == "false" || text == "False" || text == "FALSE") {
      *target = false;
    } else {
      reader.FailExpected(node, path, "true or false");
    }
  };
  return field;
}

Field Text(std::string key, std::string* target, std::string expected, TextCheck check) {
  Field field;
  field.key = std::move(key);
  field.expected = std::move(expected);
  field.read = [target, check = std::move(check), wanted = field.expected](
                   Reader& reader, const YAML::Node& node, const std::string& path) {
    const std::optional<std::string> text = ReadScalar(reader, node, path, wanted);
    if (!text) return;
    if (const std::string problem = check(*text); !problem.empty()) {
      reader.Fail(node, fmt::format("{}: {}", path, problem));
    } else {
      *target = *text;
    }
  };
  return field;
}

Field OneOf(std::string key, std::string* target, std::vector<std::string> words) {
  Field field;
  field.key = std::move(key);
  field.expected = words.size() == 1 ? words[0] : "one of " + ListOf(words);
  field.read = [target, words = std::move(words), expected = field.expected](
                   Reader& reader, const YAML::Node& node, const std::string& path) {
    if (node.IsScalar() && std::find(words.begin(), words.end(), node.Scalar()) != words.end()) {
      if (target != nullptr) *target = node.Scalar();
      return;
    }
    reader.Fail(node, fmt::format("{}: expected {}, got {}{}", path, expected, Describe(node),
                                  node.IsScalar() ? DidYouMean(node.Scalar(), words) : ""));
  };
  return field;
}

Field DurationField(std::string key, absl::Duration* target, absl::Duration least,
                    absl::Duration most) {
  Field field;
  field.key = std::move(key);
  field.expected = fmt::format("a duration from {} to {}, such as 10s",
                               longhaul::FormatDuration(least), longhaul::FormatDuration(most));
  field.read = [target, least, most, expected = field.expected](
                   Reader& reader, const YAML::Node& node, const std::string& path) {
    const auto value = ReadParsed(reader, node, path, expected, ParseDuration);
    if (!value) return;
    if (*value < least || *value > most) {
      reader.FailExpected(node, path, expected);
    } else {
      *target = *value;
    }
  };
  return field;
}

Field BytesField(std::string key, uint64_t* target) {
  return Parsed(std::move(key), target, "a size such as 8GiB", ParseBytes);
}

Field Section(std::string key, Table table) {
  Field field;
  field.key = std::move(key);
  field.section = table;
  field.read = [table = std::move(table)](Reader& reader, const YAML::Node& node,
                                          const std::string& path) {
    reader.ReadMap(node, path, table);
  };
  return field;
}

}  // namespace longhaul::config
