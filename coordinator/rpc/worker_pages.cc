#include "coordinator/rpc/worker_pages.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace longhaul::coordinator {
namespace {

bool IsMetricName(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return !text.empty() && text.size() <= 100 &&
         text.find_first_not_of(kLetters) == std::string_view::npos &&
         (text.front() < '0' || text.front() > '9');
}

StatusOr<std::string> AdmitText(std::string_view text) {
  if (text.size() > kMostMetricTextBytes) {
    return InvalidArgument("expected at most {} bytes in a text of metrics, got {}",
                           kMostMetricTextBytes, text.size());
  }
  return Printable(text);
}

StatusOr<metrics::Family> AdmitFamily(const v1::MetricFamily& family) {
  if (!IsMetricName(family.name()) || !family.name().starts_with(kWorkerPrefix)) {
    return InvalidArgument("expected a metric whose name begins with {}, got '{}'", kWorkerPrefix,
                           Printable(family.name().substr(0, 100)));
  }
  metrics::Family admitted{.name = family.name()};
  admitted.kind = family.counter() ? metrics::Kind::kCounter : metrics::Kind::kGauge;
  LH_ASSIGN_OR_RETURN(admitted.help, AdmitText(family.help()));
  if (family.label_names_size() > kMostLabels) {
    return InvalidArgument("expected at most {} labels, {} has {}", kMostLabels, family.name(),
                           family.label_names_size());
  }
  for (const std::string& label : family.label_names()) {
    const bool twice = std::ranges::find(admitted.label_names, label) != admitted.label_names.end();
    if (!IsMetricName(label) || label.starts_with("__") || label == "worker" ||
        label == "worker_id" || twice) {
      return InvalidArgument("{} has a label that a worker may not give: '{}'", family.name(),
                             Printable(label.substr(0, 100)));
    }
    admitted.label_names.push_back(label);
  }
  for (const v1::MetricSample& sample : family.samples()) {
    if (sample.labels_size() != family.label_names_size()) {
      return InvalidArgument("{} has {} labels, and a sample of it {}", family.name(),
                             family.label_names_size(), sample.labels_size());
    }
    metrics::Sample& one = admitted.samples.emplace_back();
    one.value = sample.value();
    for (const std::string& label : sample.labels()) {
      LH_ASSIGN_OR_RETURN(one.labels.emplace_back(), AdmitText(label));
    }
  }
  return admitted;
}

bool Fits(const metrics::Family& one, const metrics::Family& merged) {
  return one.kind == merged.kind &&
         std::ranges::equal(
             one.label_names,
             std::vector<std::string>(merged.label_names.begin() + 2, merged.label_names.end()));
}

}  // namespace

StatusOr<metrics::Page> AdmitMetrics(const v1::MetricsReport& report) {
  if (report.ByteSizeLong() > kMostPageBytes || report.families_size() > kMostFamilies) {
    return InvalidArgument(
        "expected at most {} bytes and {} families of metrics, got {} bytes and {} families",
        kMostPageBytes, kMostFamilies, report.ByteSizeLong(), report.families_size());
  }
  metrics::Page page;
  int samples = 0;
  for (const v1::MetricFamily& family : report.families()) {
    samples += family.samples_size();
    if (samples > kMostSamples) {
      return InvalidArgument("expected at most {} samples of metrics, got more", kMostSamples);
    }
    const auto same = [&](const metrics::Family& one) { return one.name == family.name(); };
    if (std::ranges::any_of(page, same)) {
      return InvalidArgument("the metric '{}' comes twice",
                             Printable(family.name().substr(0, 100)));
    }
    LH_ASSIGN_OR_RETURN(page.emplace_back(), AdmitFamily(family));
  }
  return page;
}

void WorkerPages::ForgetOld(MonoTime now) {
  std::erase_if(pages_, [&](const auto& one) {
    if (now - one.second.time <= kMetricsKept) return false;
    bytes_ -= one.second.bytes;
    return true;
  });
}

Status WorkerPages::Put(const std::string& worker_id, const std::string& name, metrics::Page page,
                        size_t bytes, MonoTime now) {
  const std::lock_guard lock(mutex_);
  ForgetOld(now);
  const auto known = pages_.find(worker_id);
  const size_t others = bytes_ - (known == pages_.end() ? 0 : known->second.bytes);
  if (others + bytes > kMostBytesOfPages) {
    return ResourceExhausted("the metrics of all workers have {} bytes already, and may have {}",
                             others, kMostBytesOfPages);
  }
  bytes_ = others + bytes;
  pages_[worker_id] = {.name = name, .page = std::move(page), .bytes = bytes, .time = now};
  return absl::OkStatus();
}

void WorkerPages::AddTo(metrics::Page* page, MonoTime now) {
  const std::lock_guard lock(mutex_);
  ForgetOld(now);
  std::map<std::string, metrics::Family> merged;
  for (const auto& [worker_id, kept] : pages_) {
    for (const metrics::Family& family : kept.page) {
      const auto [place, is_new] = merged.try_emplace(family.name);
      metrics::Family& all = place->second;
      if (is_new) {
        all = {.name = family.name, .kind = family.kind, .help = family.help};
        all.label_names = {"worker", "worker_id"};
        all.label_names.insert(all.label_names.end(), family.label_names.begin(),
                               family.label_names.end());
      }
      if (!Fits(family, all)) continue;
      for (const metrics::Sample& sample : family.samples) {
        metrics::Sample& one = all.samples.emplace_back();
        one.labels = {kept.name, worker_id};
        one.labels.insert(one.labels.end(), sample.labels.begin(), sample.labels.end());
        one.value = sample.value;
      }
    }
  }
  for (auto& [name, family] : merged) page->push_back(std::move(family));
}

}  // namespace longhaul::coordinator
