#include "deploy/local_commands.h"

#include <CLI/CLI.hpp>

#include "cli/samples.h"
#include "cli/steps_command.h"
#include "deploy/cluster/cluster.h"
#include "deploy/cluster/cluster_command.h"
#include "deploy/cluster/state_file.h"
#include "deploy/data/data_command.h"
#include "deploy/generate_command.h"
#include "deploy/steps/step_log.h"
#include "deploy/sweep/sweep_command.h"
#include "deploy/tokenize.h"

namespace longhaul::cli {
namespace {

LocalCluster FromState(const ClusterState& state) {
  return {.name = state.name,
          .address = state.coordinator_address,
          .token_file = state.token_file,
          .credentials_file = ClusterStateFolder(state.name) + "/user.pem",
          .insecure = state.insecure};
}

StatusOr<LocalCluster> FindCluster() {
  LH_ASSIGN_OR_RETURN(const ClusterState state, ReadClusterState());
  return FromState(state);
}

std::optional<LocalCluster> FindClusterAt(std::string_view address) {
  const std::optional<ClusterState> state = ClusterAt(address);
  return state ? std::optional(FromState(*state)) : std::nullopt;
}

}  // namespace

LocalClusters ClustersOfThisMachine() {
  return {.find = FindCluster, .at = FindClusterAt, .apply_topology = ApplyTopology};
}

void AddLocalCommands(Program& program) {
  SetStartStepLog(StartPythonStepLog);
  SetTokenizeTexts(TokenizeByPython);
  AddGenerateCommand(program);
  program.RefuseConnectionFlags(AddSweepCommand(program), /*json_too=*/false);
  program.RefuseConnectionFlags(AddCurvesCommand(program), /*json_too=*/false);
  program.RefuseConnectionFlags(AddClusterCommand(program.app(), program.exit_code()),
                                /*json_too=*/true);
  program.RefuseConnectionFlags(AddDataCommand(program.app(), program.exit_code()),
                                /*json_too=*/true);
}

}  // namespace longhaul::cli
