find_package(JPEG QUIET)
if(NOT JPEG_FOUND)
  message(FATAL_ERROR
    "fastloader needs libjpeg-turbo's headers, and CMake did not find them.\n"
    "Install them and run the same command again:\n"
    "  Debian, Ubuntu:  apt-get install libjpeg-turbo8-dev   (Debian: libjpeg62-turbo-dev)\n"
    "  Fedora, RHEL:    dnf install libjpeg-turbo-devel\n"
    "  conda:           conda install -c conda-forge libjpeg-turbo\n"
    "Or install the pure-Python version: FASTLOADER_NATIVE=0 pip install .")
endif()
add_library(fastloader_jpeg INTERFACE)
target_link_libraries(fastloader_jpeg INTERFACE JPEG::JPEG)
