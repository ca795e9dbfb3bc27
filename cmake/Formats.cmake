# Finds what the decoders of pictures are made with, and says which of their files are compiled:
# FASTLOADER_FORMAT_SOURCES, and the libraries, FASTLOADER_FORMAT_LIBRARIES. Without its library a
# format's absent.cpp is compiled in their place, and Pillow decodes the format; of JPEG, those files
# that the decoder of our own leaves to libjpeg-turbo.
set(FASTLOADER_FORMAT_SOURCES "")
set(FASTLOADER_FORMAT_LIBRARIES "")

foreach(format LIBJPEG PNG WEBP)
  if(NOT FASTLOADER_${format} MATCHES "^(auto|on|off)$")
    message(FATAL_ERROR "FASTLOADER_${format}=${FASTLOADER_${format}}: use auto, on or off")
  endif()
endforeach()

# Static if that can be: then no other package's libjpeg takes its place at run time. Debian's static
# library is not position-independent, and a shared object cannot be linked with it.
set(FASTLOADER_HAVE_LIBJPEG OFF)
if(NOT FASTLOADER_LIBJPEG STREQUAL "off")
  find_package(JPEG QUIET)
  if(JPEG_FOUND)
    # The first libjpeg has the same names, and neither the speed nor the partial decoding. Both checks
    # here are made each time: another library may have been installed meanwhile.
    include(CheckCXXSourceCompiles)
    unset(FASTLOADER_JPEG_IS_TURBO CACHE)
    set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIRS})
    check_cxx_source_compiles("#include <cstdio>
      #include <jpeglib.h>
      int version = LIBJPEG_TURBO_VERSION_NUMBER;
      int main() { return version == 0; }" FASTLOADER_JPEG_IS_TURBO)
    unset(CMAKE_REQUIRED_INCLUDES)
    set(FASTLOADER_HAVE_LIBJPEG ${FASTLOADER_JPEG_IS_TURBO})
  endif()
endif()
if(FASTLOADER_LIBJPEG STREQUAL "on" AND NOT FASTLOADER_HAVE_LIBJPEG)
  message(FATAL_ERROR "FASTLOADER_LIBJPEG=on, but libjpeg-turbo's headers were not found"
    " (libjpeg's: ${JPEG_INCLUDE_DIR}).\n"
    "  Debian, Ubuntu:  apt-get install libjpeg-turbo8-dev   (Debian: libjpeg62-turbo-dev)\n"
    "  Fedora, RHEL:    dnf install libjpeg-turbo-devel\n"
    "  conda:           conda install -c conda-forge libjpeg-turbo")
endif()
if(FASTLOADER_HAVE_LIBJPEG)
  file(GLOB sources CONFIGURE_DEPENDS csrc/image/jpeg/libjpeg/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/absent\\.cpp$")
  list(APPEND FASTLOADER_FORMAT_SOURCES ${sources})
  list(GET JPEG_LIBRARIES -1 library)
  get_filename_component(beside "${library}" DIRECTORY)
  unset(JPEG_STATIC_LIBRARY CACHE)
  find_library(JPEG_STATIC_LIBRARY libjpeg.a HINTS "${beside}" NO_DEFAULT_PATH)
  unset(FASTLOADER_JPEG_STATIC CACHE)  # and no variable of that name, which would hide the result
  if(JPEG_STATIC_LIBRARY)
    try_compile(FASTLOADER_JPEG_STATIC ${CMAKE_BINARY_DIR}/jpeg_static
      SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/cmake/jpeg_static.cpp
      COMPILE_DEFINITIONS -fPIC LINK_OPTIONS -shared
      LINK_LIBRARIES ${JPEG_STATIC_LIBRARY}
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${JPEG_INCLUDE_DIRS}")
  endif()
  add_library(fastloader_jpeg INTERFACE)
  if(FASTLOADER_JPEG_STATIC)
    target_include_directories(fastloader_jpeg SYSTEM INTERFACE ${JPEG_INCLUDE_DIRS})
    target_link_libraries(fastloader_jpeg INTERFACE ${JPEG_STATIC_LIBRARY})
    message(STATUS "fastloader: libjpeg-turbo, static: ${JPEG_STATIC_LIBRARY}")
  else()
    target_link_libraries(fastloader_jpeg INTERFACE JPEG::JPEG)
    message(STATUS "fastloader: libjpeg-turbo: ${JPEG_LIBRARIES}")
  endif()
  list(APPEND FASTLOADER_FORMAT_LIBRARIES fastloader_jpeg)
else()
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/jpeg/libjpeg/absent.cpp)
  message(STATUS "fastloader: without libjpeg-turbo (FASTLOADER_LIBJPEG=${FASTLOADER_LIBJPEG})")
endif()

# PNG's compression; Pillow, too, decodes PNG with zlib and no libpng.
set(FASTLOADER_HAVE_PNG OFF)
if(NOT FASTLOADER_PNG STREQUAL "off")
  find_package(ZLIB QUIET)
  set(FASTLOADER_HAVE_PNG ${ZLIB_FOUND})
endif()
if(FASTLOADER_PNG STREQUAL "on" AND NOT FASTLOADER_HAVE_PNG)
  message(FATAL_ERROR "FASTLOADER_PNG=on, but zlib's headers were not found.\n"
    "  Debian, Ubuntu:  apt-get install zlib1g-dev\n"
    "  Fedora, RHEL:    dnf install zlib-devel")
endif()
if(FASTLOADER_HAVE_PNG)
  file(GLOB sources CONFIGURE_DEPENDS csrc/image/png/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/absent\\.cpp$")
  list(APPEND FASTLOADER_FORMAT_SOURCES ${sources})
  list(APPEND FASTLOADER_FORMAT_LIBRARIES ZLIB::ZLIB)
  message(STATUS "fastloader: PNG with zlib ${ZLIB_VERSION_STRING}")
else()
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/png/absent.cpp)
  message(STATUS "fastloader: without PNG (FASTLOADER_PNG=${FASTLOADER_PNG})")
endif()

set(FASTLOADER_HAVE_WEBP OFF)
if(NOT FASTLOADER_WEBP STREQUAL "off")
  find_path(WEBP_INCLUDE_DIR webp/demux.h)
  find_library(WEBP_LIBRARY webp)
  find_library(WEBP_DEMUX_LIBRARY webpdemux)
  if(WEBP_INCLUDE_DIR AND WEBP_LIBRARY AND WEBP_DEMUX_LIBRARY)
    set(FASTLOADER_HAVE_WEBP ON)
  endif()
endif()
if(FASTLOADER_WEBP STREQUAL "on" AND NOT FASTLOADER_HAVE_WEBP)
  message(FATAL_ERROR "FASTLOADER_WEBP=on, but libwebp and libwebpdemux were not found.\n"
    "  Debian, Ubuntu:  apt-get install libwebp-dev\n"
    "  Fedora, RHEL:    dnf install libwebp-devel")
endif()
if(FASTLOADER_HAVE_WEBP)
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/webp/decoder.cpp csrc/image/webp/library.cpp)
  add_library(fastloader_webp INTERFACE)
  target_include_directories(fastloader_webp SYSTEM INTERFACE ${WEBP_INCLUDE_DIR})
  target_link_libraries(fastloader_webp INTERFACE ${WEBP_DEMUX_LIBRARY} ${WEBP_LIBRARY})
  list(APPEND FASTLOADER_FORMAT_LIBRARIES fastloader_webp)
  message(STATUS "fastloader: WebP with ${WEBP_LIBRARY}")
else()
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/webp/absent.cpp)
  message(STATUS "fastloader: without WebP (FASTLOADER_WEBP=${FASTLOADER_WEBP})")
endif()
