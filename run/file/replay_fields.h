// The run file's section `replay`.
#ifndef LONGHAUL_RUN_FILE_REPLAY_FIELDS_H_
#define LONGHAUL_RUN_FILE_REPLAY_FIELDS_H_

#include <optional>
#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

Field Replay(std::optional<ReplaySpec>* target, const CodecCheck& check);
// What no single key shows. Problems go to `reader`.
void CheckReplay(const RunSpec& spec, Reader& reader);
// "" without one.
std::string ReplayYaml(const std::optional<ReplaySpec>& replay);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_REPLAY_FIELDS_H_
