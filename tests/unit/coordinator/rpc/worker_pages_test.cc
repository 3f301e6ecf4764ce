#include "coordinator/rpc/worker_pages.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::MetricsReport MetricsOf(const std::string& name, double value) {
  v1::MetricsReport report;
  v1::MetricFamily* const family = report.add_families();
  family->set_name(name);
  family->set_help("A thing.");
  family->add_label_names("run");
  v1::MetricSample* const sample = family->add_samples();
  sample->add_labels("tiny-abc");
  sample->set_value(value);
  return report;
}

metrics::Page PageWith(const std::string& name, double value) {
  return AdmitMetrics(MetricsOf(name, value)).value();
}

TEST(WorkerPagesTest, PagesOfWorkersBecomeOne) {
  WorkerPages pages;
  const MonoTime now = Now();
  EXPECT_TRUE(pages.Put("id-1", "ann", PageWith("longhaul_worker_step", 3), 1000, now).ok());
  EXPECT_TRUE(pages.Put("id-2", "bob", PageWith("longhaul_worker_step", 4), 1000, now).ok());
  EXPECT_TRUE(pages.Put("id-2", "bob", PageWith("longhaul_worker_step", 5), 1000, now).ok());
  metrics::Page page;
  metrics::AddFamily(&page, metrics::Kind::kGauge, "longhaul_coordinator_info", "Itself");
  pages.AddTo(&page, now);
  ASSERT_EQ(page.size(), 2u);
  const std::string text = metrics::ToText(page);
  EXPECT_THAT(text,
              HasSubstr(R"(longhaul_worker_step{worker="ann",worker_id="id-1",run="tiny-abc"} 3)"));
  EXPECT_THAT(text,
              HasSubstr(R"(longhaul_worker_step{worker="bob",worker_id="id-2",run="tiny-abc"} 5)"));
  EXPECT_THAT(text, Not(HasSubstr(" 4\n")));
}

TEST(WorkerPagesTest, OldPagesGo) {
  WorkerPages pages;
  const MonoTime now = Now();
  EXPECT_TRUE(pages.Put("id-1", "ann", PageWith("longhaul_worker_step", 3), 1000, now).ok());
  metrics::Page page;
  pages.AddTo(&page, now + kMetricsKept + absl::Seconds(1));
  EXPECT_TRUE(page.empty());
}

TEST(WorkerPagesTest, AllPagesTogetherAreBounded) {
  WorkerPages pages;
  const MonoTime now = Now();
  const auto put = [&](const std::string& id, MonoTime time) {
    return pages.Put(id, id, PageWith("longhaul_worker_step", 3), kMostBytesOfPages / 2, time);
  };
  EXPECT_TRUE(put("a", now).ok());
  EXPECT_TRUE(put("b", now).ok());
  EXPECT_TRUE(put("b", now).ok());  // in place of its last one
  EXPECT_TRUE(absl::IsResourceExhausted(put("c", now)));
  EXPECT_TRUE(put("c", now + kMetricsKept + absl::Seconds(1)).ok());  // the others are too old
}

// Else Prometheus would refuse the whole page.
TEST(WorkerPagesTest, AFamilyOfAnotherShapeIsLeftOut) {
  WorkerPages pages;
  const MonoTime now = Now();
  EXPECT_TRUE(pages.Put("id-1", "ann", PageWith("longhaul_worker_step", 3), 1000, now).ok());
  v1::MetricsReport other = MetricsOf("longhaul_worker_step", 4);
  other.mutable_families(0)->set_label_names(0, "epoch");
  EXPECT_TRUE(pages.Put("id-2", "bob", AdmitMetrics(other).value(), 1000, now).ok());
  other = MetricsOf("longhaul_worker_step", 5);
  other.mutable_families(0)->set_counter(true);
  EXPECT_TRUE(pages.Put("id-3", "cem", AdmitMetrics(other).value(), 1000, now).ok());
  metrics::Page page;
  pages.AddTo(&page, now);
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0].samples.size(), 1u);
}

TEST(WorkerPagesTest, WhatNoWorkerSaysIsRefused) {
  const auto refused = [](const v1::MetricsReport& report) {
    return absl::IsInvalidArgument(AdmitMetrics(report).status());
  };
  for (const char* name : {"longhaul_run_state", "longhaul_coordinator_info", "up", "",
                           "longhaul_worker_a b", "longhaul_worker_x\n# TYPE y gauge"}) {
    EXPECT_TRUE(refused(MetricsOf(name, 1))) << name;
  }
  for (const char* label : {"worker", "worker_id", "__name__", "a-b", "", "1a"}) {
    v1::MetricsReport report = MetricsOf("longhaul_worker_step", 1);
    report.mutable_families(0)->set_label_names(0, label);
    EXPECT_TRUE(refused(report)) << label;
  }
  v1::MetricsReport report = MetricsOf("longhaul_worker_step", 1);
  report.mutable_families(0)->mutable_samples(0)->add_labels("more");
  EXPECT_TRUE(refused(report));
  report = MetricsOf("longhaul_worker_step", 1);
  *report.add_families() = report.families(0);
  EXPECT_TRUE(refused(report));
  report = MetricsOf("longhaul_worker_step", 1);
  report.mutable_families(0)->mutable_samples(0)->set_labels(0, std::string(257, 'a'));
  EXPECT_TRUE(refused(report));
  report = MetricsOf("longhaul_worker_step", 1);
  for (int i = 0; i < kMostSamples; ++i) {
    *report.mutable_families(0)->add_samples() = report.families(0).samples(0);
  }
  EXPECT_TRUE(refused(report));
  // A text is shown on one line, in quotes.
  report = MetricsOf("longhaul_worker_step", 1);
  report.mutable_families(0)->mutable_samples(0)->set_labels(0, "a\"} 1\nlonghaul_run_loss 3");
  WorkerPages pages;
  EXPECT_TRUE(pages.Put("id", "ann", AdmitMetrics(report).value(), 1000, Now()).ok());
  metrics::Page page;
  pages.AddTo(&page, Now());
  EXPECT_THAT(metrics::ToText(page), Not(HasSubstr("\nlonghaul_run_loss")));
}

}  // namespace
}  // namespace longhaul::coordinator
