// The run file's section `topology`.
#ifndef LONGHAUL_BASE_CONFIG_TOPOLOGY_FIELDS_H_
#define LONGHAUL_BASE_CONFIG_TOPOLOGY_FIELDS_H_

#include <optional>
#include <string>

#include "base/config/topology.h"
#include "base/config/yaml_reader.h"

namespace longhaul::config {

Field Topology(std::optional<TopologySpec>* target);
// "" without one.
std::string TopologyYaml(const std::optional<TopologySpec>& topology);

}  // namespace longhaul::config

#endif  // LONGHAUL_BASE_CONFIG_TOPOLOGY_FIELDS_H_
