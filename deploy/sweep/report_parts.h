// The sections of a report, each HTML, "" where there is nothing to show. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_REPORT_PARTS_H_
#define LONGHAUL_DEPLOY_SWEEP_REPORT_PARTS_H_

#include <string>

#include "deploy/sweep/report_model.h"

namespace longhaul::cli {

// A section with a heading; "" around nothing.
std::string Section(const std::string& heading, const std::string& content);

// report_data.cc: what page/report.js draws from, JSON:
// {"curves": [{"name", "colour", "shape"}],
//  "rates": [{"place": bits per second or what stands for them, "label"}],
//  "settings": [title],
//  "medians": [{"setting", "rate", "curve", "tokens_per_second"}],
//  "points": [{"setting", "rate", "curve", "name", "short_name", "step_seconds",
//              "simulated_seconds", "shares": {part: of 1}, "losses": null or {"validation",
//              "steps": [], "seconds": [], "values": []}}]}
// Settings, rates and curves are named by their places in the lists. Measured points only.
std::string ChartData(const ReportModel& model);

// report_tables.cc
std::string ThroughputTables(const ReportModel& model);
std::string PredictionSummary(const ReportModel& model);  // a sentence
std::string PointsTable(const ReportModel& model);
std::string UnmeasuredTable(const ReportModel& model);  // failed, impossible, waiting
std::string LossTable(const ReportModel& model);
std::string BytesTable(const ReportModel& model);
std::string StagesTable(const ReportModel& model);
std::string Explanations(const ReportModel& model);
std::string SetUp(const ReportModel& model);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_REPORT_PARTS_H_
