// Shared by the figures and tables of a report: the sweep's dimensions, in the order of its points,
// and the look of each curve. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_REPORT_MODEL_H_
#define LONGHAUL_DEPLOY_SWEEP_REPORT_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/sweep/results.h"

namespace longhaul::cli {

// The dimensions that are fixed in one plot, being neither its axis nor its curves.
struct ReportSetting {
  double delay_seconds = 0;
  std::string variant;
  std::string title;  // "25 ms one way, mbs2"; "" where there is nothing to say
  friend bool operator==(const ReportSetting&, const ReportSetting&) = default;
};

// A codec pair with a schedule: the pair has the colour, the schedule dash and marker.
struct ReportCurve {
  std::string links, schedule;
  std::string name;  // "paper, 1f1b"; without the schedule where there is only one
  int colour = 0, shape = 0;
};

class ReportModel {
 public:
  // `results` must outlive it.
  explicit ReportModel(const SweepResults& results);

  const SweepResults& results() const { return results_; }
  const std::vector<ReportSetting>& settings() const { return settings_; }
  const std::vector<ReportCurve>& curves() const { return curves_; }
  const std::vector<uint64_t>& rates() const { return rates_; }
  const std::vector<std::string>& links() const { return links_; }
  const std::vector<std::string>& schedules() const { return schedules_; }

  // The measured points of all repeats.
  std::vector<const PointResult*> Done(const ReportSetting& setting, uint64_t rate,
                                       const std::string& links, const std::string& schedule) const;
  std::vector<const PointResult*> Done() const;
  // Median over the repeats; nullopt: none is done.
  std::optional<double> TokensPerSecond(const ReportSetting& setting, uint64_t rate,
                                        const std::string& links,
                                        const std::string& schedule) const;
  // "paper, 1f1b, repeat 2": within a setting and a rate.
  std::string ShortName(const PointResult& point) const;
  // "100 Mbit/s, 25 ms one way, paper, 1f1b, repeat 2".
  std::string LongName(const PointResult& point) const;

 private:
  static ReportSetting SettingOf(const PointResult& point);

  const SweepResults& results_;
  std::vector<ReportSetting> settings_;
  std::vector<ReportCurve> curves_;
  std::vector<uint64_t> rates_;
  std::vector<std::string> links_, schedules_;
  bool repeats_ = false;
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_REPORT_MODEL_H_
