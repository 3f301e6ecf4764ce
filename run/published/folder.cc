#include "run/published/folder.h"

#include <filesystem>
#include <utility>

#include "base/file.h"

namespace longhaul::published {
namespace {

class FolderOnDisk final : public ModelFolder {
 public:
  explicit FolderOnDisk(std::string path) : path_(std::move(path)) {}

  std::string Shown() const override { return path_; }
  std::string Shown(const std::string& file) const override { return path_ + "/" + file; }
  std::string Address() const override { return ""; }

  StatusOr<bool> Has(const std::string& file) override {
    const std::string path = Shown(file);
    std::error_code error;
    if (std::filesystem::exists(path, error)) return true;
    if (const auto target = std::filesystem::read_symlink(path, error); !error) {
      return InvalidArgument("{}: it is a link to {}, where there is no file; download it again",
                             path, target.string());
    }
    return false;
  }
  StatusOr<std::string> ReadWhole(const std::string& file, uint64_t limit) override {
    return ReadFile(Shown(file), limit);
  }
  StatusOr<FileVersion> Look(const std::string& file) override {
    LH_ASSIGN_OR_RETURN(mapped_, MappedFile::Open(Shown(file)));
    return FileVersion{.name = file, .bytes = mapped_.bytes().size(), .tag = {}};
  }
  StatusOr<std::vector<std::byte>> ReadStart(const FileVersion&, uint64_t count) override {
    const auto start = mapped_.bytes().first(count);
    return std::vector<std::byte>(start.begin(), start.end());
  }

 private:
  const std::string path_;
  MappedFile mapped_;  // the file that Look saw last
};

}  // namespace

std::unique_ptr<ModelFolder> OpenFolder(const std::string& path) {
  return std::make_unique<FolderOnDisk>(path);
}

}  // namespace longhaul::published
