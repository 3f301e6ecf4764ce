#include "base/metrics/page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "base/metrics/families.h"

namespace longhaul::metrics {

std::vector<prometheus::MetricFamily> ToFamilies(const Page& page) {
  std::vector<prometheus::MetricFamily> families;
  families.reserve(page.size());
  for (const Family& one : page) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = one.name;
    family.help = one.help;
    family.type = one.kind == Kind::kCounter ? prometheus::MetricType::Counter
                                             : prometheus::MetricType::Gauge;
    family.metric.reserve(one.samples.size());
    for (const Sample& sample : one.samples) {
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label.reserve(sample.labels.size());
      for (size_t i = 0; i < sample.labels.size() && i < one.label_names.size(); ++i) {
        metric.label.push_back({one.label_names[i], sample.labels[i]});
      }
      metric.gauge.value = metric.counter.value = sample.value;
    }
  }
  return families;
}

std::string ToMarkdown(const Page& page) {
  std::string table = "| metric | type | labels | what |\n| --- | --- | --- | --- |\n";
  for (const Family& family : page) {
    std::string labels;
    for (const std::string& label : family.label_names) {
      labels += (labels.empty() ? "`" : ", `") + label + "`";
    }
    table += "| `" + family.name + "` | " + (family.kind == Kind::kCounter ? "counter" : "gauge") +
             " | " + labels + " | " + family.help + " |\n";
  }
  return table;
}

std::string ToText(const Page& page) {
  return prometheus::TextSerializer().Serialize(ToFamilies(page));
}

}  // namespace longhaul::metrics
