add_library(fastloader_warnings INTERFACE)
target_compile_options(fastloader_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wsign-conversion>)
option(FASTLOADER_WERROR "treat warnings as errors (CI)" OFF)
if(FASTLOADER_WERROR)
  target_compile_options(fastloader_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
