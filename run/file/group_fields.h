// The section `group` of a run file: the ranks that share a stage.
#ifndef LONGHAUL_RUN_FILE_GROUP_FIELDS_H_
#define LONGHAUL_RUN_FILE_GROUP_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

Field Group(GroupSpec* group);
// What ranks cannot share: models whose heads or channels they do not divide, and what needs whole
// matrices.
void CheckGroup(const RunSpec& spec, Reader& reader);
// All groups that the run file's may become, of workers with so many devices: fewer ranks first,
// and of these fewer parts of experts. Itself alone where nothing is "auto".
std::vector<GroupSpec> GroupsLeftOpen(const RunSpec& spec, uint32_t most_ranks);
// "" for one rank, so that neighbours of an older version can read what they can carry out.
std::string GroupYaml(const GroupSpec& group);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_GROUP_FIELDS_H_
