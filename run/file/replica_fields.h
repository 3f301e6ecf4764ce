// The keys of a run file's section `pipeline` that are about replicas: copies of the pipeline that
// train together.
#ifndef LONGHAUL_RUN_FILE_REPLICA_FIELDS_H_
#define LONGHAUL_RUN_FILE_REPLICA_FIELDS_H_

#include <cstdint>
#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

// A number, or auto.
Field ReplicaCount(ReplicasSpec* spec);
Field Gradients(replicas::GradientOptions* gradients);
Field ReplicatedParameters(replicas::ParameterForm* parameters);
// What replicas cannot train together yet, and keys that say nothing where there is one replica.
void CheckReplicas(const RunSpec& spec, Reader& reader);
// "" for one replica, so that neighbours of an older version can read what they can carry out.
std::string ReplicasYaml(const ReplicasSpec& replicas);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_REPLICA_FIELDS_H_
