// The sections of a report, each HTML, "" where there is nothing to show. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_REPORT_PARTS_H_
#define LONGHAUL_DEPLOY_SWEEP_REPORT_PARTS_H_

#include <string>

#include "deploy/sweep/report_model.h"

namespace longhaul::cli {

// A section with a heading; "" around nothing.
std::string Section(const std::string& heading, const std::string& content);

// report_figures.cc
std::string ThroughputFigures(const ReportModel& model);
std::string AttributionFigures(const ReportModel& model);
std::string LossFigures(const ReportModel& model);
std::string PredictionFigure(const ReportModel& model);

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
