// A page of Prometheus metrics: families of samples. A daemon makes a new page from its counters
// for each scrape, so runs and workers that are gone are not on the page. Plain data, pure
// functions.
//
//   std::optional<double> StepOf(const Run& run) { return run.step; }
//
//   constexpr Row<Run> kRows[] = {{"longhaul_run_step", Kind::kGauge, "Last step", &StepOf}};
//   AddRows<Run>(&page, kRows, {"run"}, {{{"gpt-1"}, &run}});
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul::metrics {

enum class Kind : uint8_t { kGauge, kCounter };  // a counter never decreases

struct Sample {
  std::vector<std::string> labels;  // values, in the order of the family's label_names
  double value = 0;
};

struct Family {
  std::string name;  // Prometheus' conventions: base units, counters end in _total
  Kind kind = Kind::kGauge;
  std::string help;  // one line
  std::vector<std::string> label_names;
  std::vector<Sample> samples;  // may be empty: the family is listed anyway
};

using Page = std::vector<Family>;

// A row of a table of metrics. It describes a family that has one sample for each object of type T,
// such as a run.
template <class T>
struct Row {
  std::string_view name;
  Kind kind;
  std::string_view help;
  std::optional<double> (*value)(const T& thing);  // nullopt: no sample for this T
};

// An object of type T, not owned and never null, and the values of its labels.
template <class T>
struct Labelled {
  std::vector<std::string> labels;
  const T* thing;
};

// Adds a family without samples. The reference is valid until the page changes.
inline Family& AddFamily(Page* page, Kind kind, std::string_view name, std::string_view help,
                         std::vector<std::string> label_names = {}) {
  return page->emplace_back(
      Family{std::string(name), kind, std::string(help), std::move(label_names), {}});
}

// Adds a family for every row, with a sample for each thing for which row.value gives a value.
template <class T>
void AddRows(Page* page, std::span<const Row<T>> rows, const std::vector<std::string>& label_names,
             const std::vector<Labelled<T>>& things) {
  for (const Row<T>& row : rows) {
    Family& family = AddFamily(page, row.kind, row.name, row.help, label_names);
    for (const Labelled<T>& one : things) {
      if (const std::optional<double> value = row.value(*one.thing)) {
        family.samples.push_back({one.labels, *value});
      }
    }
  }
}

// Returns the page in Prometheus' text format.
std::string ToText(const Page& page);
// Returns a table of the families in Markdown, for the reference of metrics.
std::string ToMarkdown(const Page& page);

}  // namespace longhaul::metrics
