// Converts a page to the types of prometheus-cpp. Internal to base/metrics.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "base/metrics/page.h"

namespace longhaul::metrics {

std::vector<prometheus::MetricFamily> ToFamilies(const Page& page);

}  // namespace longhaul::metrics
