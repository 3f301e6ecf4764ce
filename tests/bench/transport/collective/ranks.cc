#include "tests/bench/transport/collective/ranks.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "transport/collective/exact/factory.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/mapped/factory.h"
#include "transport/collective/nccl/factory.h"
#include "transport/collective/switcher/factory.h"
#include "transport/collective/taco/factory.h"
#include "transport/collective/zip/factory.h"

namespace longhaul::collective::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Minutes(2);
constexpr absl::Duration kChildEndLimit = absl::Seconds(10);

std::string Self() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof(path));
  return {path, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

StatusOr<std::shared_ptr<Communicator>> Native(const Options& options, const Place& place,
                                               const std::shared_ptr<Member>& member) {
  const Deadline deadline = Deadline::After(kStartLimit);
  if (place.device() == nullptr) return host::Create(member, {}, deadline);
  return nccl::Create(member, *place.device(), {.libraries = NcclCandidates(options.nccl)},
                      deadline);
}

// Makes one rank's communicators.
struct Maker {
  const Options& options;
  const Place& place;
  std::shared_ptr<Member> member;
  std::shared_ptr<Communicator> native, mapped;
};

// A communicator has its member for itself, so this one's is of a group of its own.
StatusOr<std::shared_ptr<Communicator>> Mapped(const Options& options, const Place& place,
                                               Member& member,
                                               std::unique_ptr<Rendezvous>* rendezvous) {
  if (std::ranges::none_of(options.variants, &Variant::mapped)) return nullptr;
  const Deadline deadline = Deadline::After(kStartLimit);
  std::string id;
  if (member.place().rank == 0) {
    LH_ASSIGN_OR_RETURN(*rendezvous, Rendezvous::Open());
    id = (*rendezvous)->id();
  }
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> ids, member.Tell(id, deadline));
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Member> own, Member::Join(ids[0], member.place(), deadline));
  return mapped::Create(std::move(own), *place.device(), deadline);
}

StatusOr<std::shared_ptr<Communicator>> Make(const Maker& maker, const Variant& variant);

StatusOr<std::shared_ptr<Communicator>> MakeSwitcher(const Maker& maker, const Variant& variant) {
  std::vector<switcher::Alternative> alternatives;
  for (const Variant& one : variant.with) {
    LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> made, Make(maker, one));
    alternatives.push_back({one.text, std::move(made)});
  }
  return switcher::Create(maker.member, maker.native, std::move(alternatives), maker.place.device(),
                          {.dtypes = {maker.options.dtype},
                           .margin = variant.margin,
                           .recorded = maker.options.graph,
                           .cache_folder = maker.options.cache},
                          Deadline::After(kStartLimit));
}

StatusOr<std::shared_ptr<Communicator>> Make(const Maker& maker, const Variant& variant) {
  const std::shared_ptr<Communicator>& below = variant.mapped ? maker.mapped : maker.native;
  const Place& place = maker.place;
  switch (variant.kind) {
    case Variant::Kind::kNative:
      return below;
    case Variant::Kind::kExact:
      return exact::Create(below, place.device(), {});
    case Variant::Kind::kZip:
      return zip::Create(below, place.device(), variant.zip);
    case Variant::Kind::kTaco:
      return taco::Create(below, place.device(), variant.taco);
    case Variant::Kind::kSwitcher:
      return MakeSwitcher(maker, variant);
  }
  return below;
}

StatusOr<std::unique_ptr<Place>> PlaceOf(const cuda::DeviceTable* table, uint32_t rank) {
  if (table == nullptr) return Place::Host();
  LH_ASSIGN_OR_RETURN(const cuda::Device device, cuda::Device::Open(table, rank));
  return Place::Gpu(device);
}

// What is the same for all ranks of a process.
struct Common {
  const Options& options;
  const cuda::DeviceTable* table;
  const Numbers& numbers;
  Gate* gate;
  const Listener& listener;
};

Status Measure(const Common& common, const std::shared_ptr<Member>& member) {
  const uint32_t rank = member->place().rank;
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<Place> place, PlaceOf(common.table, rank));
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> native,
                      Native(common.options, *place, member));
  std::unique_ptr<Rendezvous> rendezvous;  // rank 0's, of `mapped`
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> mapped,
                      Mapped(common.options, *place, *member, &rendezvous));
  const Maker maker{common.options, *place, member, native, mapped};
  RankSetting setting{.options = &common.options,
                      .numbers = &common.numbers,
                      .member = member,
                      .gate = common.gate,
                      .place = place.get(),
                      .done = common.listener.rows};
  for (const Variant& variant : common.options.variants) {
    LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> made, Make(maker, variant));
    setting.candidates.push_back({variant, std::move(made)});
  }
  if (rank == 0) common.listener.ready(native->Describe());
  const std::vector<Candidate> candidates = setting.candidates;
  LH_RETURN_IF_ERROR(MeasureAll(std::move(setting)));
  for (const Candidate& candidate : candidates) {
    const auto* const made = dynamic_cast<const switcher::Switcher*>(candidate.communicator.get());
    if (made == nullptr || rank != 0) continue;
    common.listener.decided(candidate.variant.text,
                            made->origin() + "\n" + switcher::ToText(made->decisions()));
  }
  return absl::OkStatus();
}

Status RunRank(const Common& common, const std::string& id, uint32_t rank) {
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<Member> member,
                      Member::Join(id, {rank, common.options.ranks}, Deadline::After(kStartLimit)));
  Status status = Measure(common, member);
  if (!status.ok()) member->End(status);
  return status;
}

uint64_t MostElements(const Options& options) {
  uint64_t most = 1;
  for (const Job& job : JobsOf(options)) most = std::max(most, job.bytes);
  return std::max<uint64_t>(most / BytesPerElement(options.dtype), 1);
}

StatusOr<Numbers> NumbersOf(const Options& options) {
  return Numbers::Create(options.data, options.dtype, options.ranks, MostElements(options));
}

// What processes share.
struct Page {
  Gate gate;
  char id[128];
};

StatusOr<Page*> MapPage(int fd) {
  void* const page = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return FromErrno("sharing memory among ranks", errno);
  return static_cast<Page*>(page);
}

StatusOr<pid_t> Start(const std::vector<std::string>& arguments) {
  const std::string self = Self();
  std::vector<char*> argv = {const_cast<char*>(self.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return FromErrno("starting a rank", errno);
  if (pid == 0) {
    ::execv(self.c_str(), argv.data());
    ::_exit(127);
  }
  return pid;
}

// Ends those that do not end by themselves.
Status AwaitChildren(const std::vector<pid_t>& children) {
  const Deadline deadline = Deadline::After(kChildEndLimit);
  Status result;
  for (size_t k = 0; k < children.size(); ++k) {
    int code = 0;
    while (true) {
      const pid_t ended = ::waitpid(children[k], &code, WNOHANG);
      if (ended != 0) break;
      if (deadline.Expired()) ::kill(children[k], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (code != 0 && result.ok()) {
      result = Internal("the process of rank {} ended with {}", k + 1,
                        WIFSIGNALED(code) ? fmt::format("signal {}", WTERMSIG(code))
                                          : fmt::format("exit code {}", WEXITSTATUS(code)));
    }
  }
  return result;
}

}  // namespace

std::vector<std::string> NcclCandidates(const std::string& chosen) {
  if (!chosen.empty()) return {chosen};
  std::vector<std::string> files;
  const auto beside = [&](const std::filesystem::path& packages) {
    const auto file = packages / "nvidia/nccl/lib/libnccl.so.2";
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) files.push_back(file.string());
  };
  // Where programs find LibTorch: in the checkout, or where they were told.
  std::error_code ignored;
  const auto lib = std::filesystem::path(Self()).parent_path() / "../../../.deps/venv/lib";
  for (const auto& entry : std::filesystem::directory_iterator(lib, ignored)) {
    beside(entry.path() / "site-packages");
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets the environment
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.ends_with("torch/lib")) {
      beside(std::filesystem::path(folder).parent_path().parent_path());
    }
  }
  files.emplace_back("libnccl.so.2");
  return files;
}

Status RunThreads(const Options& options, const cuda::DeviceTable* table,
                  const Listener& listener) {
  LH_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(options));
  LH_ASSIGN_OR_RETURN(const auto rendezvous, Rendezvous::Open());
  Gate gate;
  const Common common{options, table, numbers, &gate, listener};
  std::vector<Status> results(options.ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] { results[rank] = RunRank(common, rendezvous->id(), rank); });
  }
  for (std::thread& thread : threads) thread.join();
  // The one that failed, rather than those that were told so.
  for (const Status& result : results) {
    if (!result.ok() && !absl::IsAborted(result)) return result;
  }
  for (const Status& result : results) LH_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

Status RunProcesses(const Options& options, const cuda::DeviceTable* table,
                    const std::vector<std::string>& arguments, const Listener& listener) {
  LH_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(options));
  const UniqueFd fd(::memfd_create("longhaul-bench-collective", 0));  // the others inherit it
  if (fd.get() < 0 || ::ftruncate(fd.get(), sizeof(Page)) != 0) {
    return FromErrno("sharing memory among ranks", errno);
  }
  LH_ASSIGN_OR_RETURN(Page* const page, MapPage(fd.get()));
  std::vector<pid_t> children;
  Status result;
  {
    LH_ASSIGN_OR_RETURN(const auto rendezvous, Rendezvous::Open());
    if (rendezvous->id().size() >= sizeof(page->id)) {
      return absl::InternalError("the group's id has no room");
    }
    std::memcpy(page->id, rendezvous->id().data(), rendezvous->id().size());
    for (uint32_t rank = 1; rank < options.ranks && result.ok(); ++rank) {
      std::vector<std::string> own = arguments;
      own.insert(own.end(), {"--child-rank", fmt::format("{}", rank), "--child-page",
                             fmt::format("{}", fd.get())});
      const StatusOr<pid_t> child = Start(own);
      result = child.status();
      if (child.ok()) children.push_back(*child);
    }
    if (result.ok()) {
      result = RunRank({options, table, numbers, &page->gate, listener}, rendezvous->id(), 0);
    }
    // The rendezvous stays while others say goodbye.
    const Status ended = AwaitChildren(children);
    if (result.ok()) result = ended;
  }
  ::munmap(page, sizeof(Page));
  return result;
}

Status RunChild(const Options& options, const cuda::DeviceTable* table, uint32_t rank, int page) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  LH_ASSIGN_OR_RETURN(Page* const shared, MapPage(page));
  LH_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(options));
  const Listener nobody;
  return RunRank({options, table, numbers, &shared->gate, nobody}, shared->id, rank);
}

}  // namespace longhaul::collective::bench
