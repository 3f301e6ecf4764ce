// Converts a page to the types of prometheus-cpp. Internal to base/metrics.
#ifndef LONGHAUL_BASE_METRICS_FAMILIES_H_
#define LONGHAUL_BASE_METRICS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "base/metrics/page.h"

namespace longhaul::metrics {

std::vector<prometheus::MetricFamily> ToFamilies(const Page& page);

}  // namespace longhaul::metrics

#endif  // LONGHAUL_BASE_METRICS_FAMILIES_H_
