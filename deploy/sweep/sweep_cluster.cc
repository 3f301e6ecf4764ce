#include "deploy/sweep/sweep_cluster.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/hash.h"
#include "deploy/cluster/cluster.h"

namespace longhaul::cli {
namespace {

// A cluster's name has at most 12 characters.
std::string NameOf(const std::string& out) {
  std::error_code ignored;
  const std::string path = std::filesystem::weakly_canonical(out, ignored).string();
  return "sweep" + Sha256Hex(path).substr(0, 7);
}

}  // namespace

SweepCluster::SweepCluster(const Terminal& terminal, Interrupt& interrupt, const std::string& out,
                           const SweepWorkers& workers)
    : terminal_(terminal), interrupt_(interrupt), name_(NameOf(out)), workers_(workers) {}

SweepCluster::~SweepCluster() {
  if (const Status status = Clear(); !status.ok()) {
    terminal_.err << fmt::format(
                         "the sweep's cluster could not be taken down: {}. Try `longhaul cluster "
                         "down --name {}`",
                         Message(status), name_)
                  << std::endl;
  }
}

Status SweepCluster::Clear() {
  client_.reset();
  link_.reset();
  return ClusterDown(name_).status();
}

Status SweepCluster::Up(const LinkParameters& link) {
  ClusterUpOptions options;
  options.name = name_;
  options.workers = workers_.count;
  options.device = workers_.device;
  options.link = link;
  LH_ASSIGN_OR_RETURN(const ClusterState state, ClusterUp(options));
  CoordinatorAccess access;
  access.addresses = {state.coordinator_address};
  access.address_source = "the sweep's cluster";
  access.token_file = access.token_source = state.token_file;
  access.credentials_file = ClusterStateFolder(state.name) + "/user.pem";
  access.insecure = state.insecure;
  LH_ASSIGN_OR_RETURN(client_, Client::Open(std::move(access), interrupt_));
  return absl::OkStatus();
}

StatusOr<Client*> SweepCluster::With(const LinkParameters& link) {
  if (!link_) {
    LH_RETURN_IF_ERROR(Up(link));
  } else if (*link_ != link) {
    LinkChange change;
    change.worker = "all";
    change.up_bits_per_second = link.up_bits_per_second;
    change.down_bits_per_second = link.down_bits_per_second;
    change.delay = link.quality.delay;
    change.jitter = link.quality.jitter;
    change.loss = link.quality.loss;
    LH_RETURN_IF_ERROR(ChangeLinks(name_, {change}));
  }
  link_ = link;
  return client_.get();
}

StatusOr<ClusterView> SweepCluster::Observe() const {
  return ObserveCluster(name_);
}

}  // namespace longhaul::cli
