// Reads and prints the run file's section `topology`.
#pragma once

#include <optional>
#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/topology.h"

namespace longhaul::config {

// The field that reads the section into `target`, which must outlive the field.
Field Topology(std::optional<TopologySpec>* target);
// Lines of YAML that begin with '\n'; "" without a topology.
std::string TopologyText(const std::optional<TopologySpec>& topology);

}  // namespace longhaul::config
